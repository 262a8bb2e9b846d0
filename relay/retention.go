package relay

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/config"
	"github.com/cdc-outbox/cdc-outbox/outbox"
	"github.com/cdc-outbox/cdc-outbox/retention"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// startRetention keeps the tables small beside the stream, on a connection and
// a goroutine of its own, and returns what ends both. It begins after begin: a
// snapshot's rows are published by then.
func (s *source) startRetention(ctx context.Context) (stop func()) {
	keep := s.cfg.Retention
	if keep.After == 0 {
		return func() {}
	}
	span := outbox.Daily
	if keep.PartitionSpan == config.SpanHour {
		span = outbox.Hourly
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		retention.Run(ctx, retention.Options{
			Connect:   func(ctx context.Context) (*pgx.Conn, error) { return wal.Connect(ctx, s.cfg.Source.URL.Reveal()) },
			Tables:    s.tables,
			After:     keep.After,
			Column:    keep.Column,
			Interval:  keep.Interval,
			Ahead:     keep.PartitionsAhead,
			Span:      span,
			Confirmed: s.health.confirmed,
			Observer:  s.health.retention,
			Log:       s.log,
		})
	})
	return func() {
		cancel()
		running.Wait()
	}
}
