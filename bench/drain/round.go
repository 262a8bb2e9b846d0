package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
)

// round is a pair of measurements on the same backlog.
type round struct {
	rows           int
	limit, drained time.Duration
	cpu            time.Duration
	peakRSS        int64 // bytes
}

func (r round) ratio() float64 { return r.limit.Seconds() / r.drained.Seconds() }
func (r round) rate() float64  { return float64(r.rows) / r.drained.Seconds() }
func (r round) cpuMicros() float64 {
	return r.cpu.Seconds() * 1e6 / float64(r.rows)
}

func (r round) line(n int) string {
	return fmt.Sprintf("round %d: pg_recvlogical %6.0f rows/s, cdc-outbox %6.0f rows/s, ratio %.2f, CPU %.1f µs/event, peak RSS %.1f MiB",
		n, float64(r.rows)/r.limit.Seconds(), r.rate(), r.ratio(), r.cpuMicros(), float64(r.peakRSS)/(1<<20))
}

func summary(rounds []round) string {
	return fmt.Sprintf("median of %d: ratio %.2f × pg_recvlogical, CPU %.1f µs/event, peak RSS %.1f MiB",
		len(rounds), median(rounds, round.ratio), median(rounds, round.cpuMicros),
		median(rounds, func(r round) float64 { return float64(r.peakRSS) / (1 << 20) }))
}

func median[T any](rounds []T, of func(T) float64) float64 {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = of(r)
	}
	return figures.Median(values)
}

// measure runs both readers, the first one alternating with n.
func measure(ctx context.Context, o options, db *database, n int) (round, error) {
	r := round{rows: o.rows / o.perTx * o.perTx}
	steps := []func() error{
		func() error { return recvlogical(ctx, db, &r) },
		func() error { return connector(ctx, o, db, db.backlogs[0], &r) },
	}
	if n%2 == 1 {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return r, err
		}
	}
	return r, nil
}

// recvlogical times pg_recvlogical.
func recvlogical(ctx context.Context, db *database, r *round) error {
	const slot = "bench_limit"
	from := db.backlogs[0]
	if err := db.copySlot(ctx, from, slot); err != nil {
		return err
	}
	bin, err := pgserver.Find()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "pg_recvlogical"),
		"--dbname", db.url, "--slot", slot, "--start", "--file", "/dev/null", "--no-loop",
		"--endpos", from.end, "--option", "proto_version=1", "--option", "publication_names="+publication)
	if from.mode == modeMessage {
		cmd.Args = append(cmd.Args, "--option", "messages=true")
	}
	cmd.Stderr = os.Stderr
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pg_recvlogical: %w", err)
	}
	r.limit = time.Since(began)
	return db.dropSlot(ctx, slot)
}

// connector times cdc-outbox on a backlog, with defaults except for where it
// reads and writes.
func connector(ctx context.Context, o options, db *database, from backlog, r *round) error {
	const slot = "bench_connector"
	if err := db.copySlot(ctx, from, slot); err != nil {
		return err
	}
	kafka, err := rig.StartBroker(topic, o.partitions)
	if err != nil {
		return err
	}
	defer kafka.Stop()

	settings := []string{
		"source.url=" + db.url, "source.slot=" + slot, "source.publication=" + publication, "sink.kafka.brokers=" + kafka.Addr,
	}
	if from.mode == modeMessage {
		settings = append(settings, "source.mode=message")
	}
	began := time.Now()
	program, err := rig.Run(o.binary, append(settings, o.set...)...)
	if err != nil {
		return err
	}
	if err := db.waitConfirmed(ctx, slot, from.end); err != nil {
		return err
	}
	r.drained = time.Since(began)
	if r.cpu, r.peakRSS, err = program.Stop(); err != nil {
		return err
	}
	if got, err := kafka.Records(ctx); err != nil || got != int64(r.rows) {
		return fmt.Errorf("the topic has %d records instead of %d: %w", got, r.rows, err)
	}
	if err := db.waitReleased(ctx, slot); err != nil {
		return err
	}
	return db.dropSlot(ctx, slot)
}
