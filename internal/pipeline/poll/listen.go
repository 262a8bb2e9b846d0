package poll

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

const (
	// pingEvery is how often a silent connection is looked at.
	pingEvery = 30 * time.Second
	// probePatience is how long the notification of the probe may take.
	probePatience = 5 * time.Second
)

// listenWaits are the waits between connections.
var listenWaits = backoff.Range{First: time.Second, Longest: 30 * time.Second}

// errUnheard means that notifications do not arrive despite a connection: a pooler is
// in between.
var errUnheard = errors.New("no notification arrives, as through a pooler in transaction mode")

// listener waits for notifications and wakes the first worker. Without notifications
// the worker only polls. run is the listener's goroutine.
type listener struct {
	url     string
	channel string
	wake    chan<- struct{} // capacity 1
	health  *Health
	log     *zap.Logger
}

// run listens until ctx ends. Never fails: without notifications, polling only takes
// longer.
func (l *listener) run(ctx context.Context) {
	retry := backoff.Series{Range: listenWaits}
	for ctx.Err() == nil {
		began := time.Now()
		err := l.listen(ctx)
		l.health.listening(false)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errUnheard) {
			l.log.Warn("polling by the interval only", zap.Error(err),
				zap.String("remedy", "connect to PostgreSQL directly, or set source.poll.notify to \"\""))
			return
		}
		if time.Since(began) > time.Minute {
			retry.Reset()
		}
		l.log.Debug("connection for notifications ended", zap.Error(err))
		if retry.Pause(ctx) != nil {
			return
		}
	}
}

// listen returns why a connection ended.
func (l *listener) listen(ctx context.Context) error {
	conn, err := catalog.ConnectPooled(ctx, l.url)
	if err != nil {
		return err
	}
	defer catalog.Close(conn)
	if _, err := conn.Exec(ctx, "LISTEN "+pgsql.Name(l.channel)); err != nil {
		return err
	}
	if err := l.probe(ctx, conn); err != nil {
		return err
	}
	l.health.listening(true)
	for {
		session.Wake(l.wake) // also for everything missed before
		if err := l.next(ctx, conn); err != nil {
			return err
		}
	}
}

// next waits for a notification.
func (l *listener) next(ctx context.Context, conn *pgx.Conn) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, pingEvery)
		_, err := conn.WaitForNotification(waiting)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		ping, cancel := context.WithTimeout(ctx, statementTimeout)
		err = conn.Ping(ping)
		cancel()
		if err != nil {
			return err
		}
	}
}

// probe sends a notification from another connection and waits for its arrival.
func (l *listener) probe(ctx context.Context, conn *pgx.Conn) error {
	other, err := catalog.ConnectPooled(ctx, l.url)
	if err != nil {
		return err
	}
	defer catalog.Close(other)
	token := "probe " + strconv.FormatInt(time.Now().UnixNano(), 36)
	if _, err := other.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", l.channel, token); err != nil {
		return fmt.Errorf("send a notification: %w", err)
	}
	waiting, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	for {
		heard, err := conn.WaitForNotification(waiting)
		switch {
		case err == nil && heard.Payload == token:
			return nil
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return errUnheard
		case err != nil:
			return err
		}
	}
}
