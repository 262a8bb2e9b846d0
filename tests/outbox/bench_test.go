package outbox_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// BenchmarkWrite compares a statement for each event with a single statement for
// all, and with messages. An operation is so many events in an open transaction:
// begin and commit cost the same for all. Compare figures of a single run.
func BenchmarkWrite(b *testing.B) {
	url := newDB(b, outbox.Schema)
	w := newWriter(b, outbox.Options{})
	for _, client := range []string{"pgx, mode cache statement", "sql with pgx", "sql with lib/pq"} {
		for _, n := range []int{1, 10, 100, 1000} {
			events := make([]outbox.Event, n)
			for i := range events {
				events[i] = order(fmt.Sprint(i))
			}
			for name, write := range map[string]func(outbox.Tx) error{
				"one by one": func(tx outbox.Tx) error {
					for _, e := range events {
						if _, err := w.Write(b.Context(), tx, e); err != nil {
							return err
						}
					}
					return nil
				},
				"bulk": func(tx outbox.Tx) error {
					_, err := w.Write(b.Context(), tx, events...)
					return err
				},
				"messages": func(tx outbox.Tx) error {
					_, err := w.Emit(b.Context(), tx, events...)
					return err
				},
			} {
				b.Run(fmt.Sprintf("%s/%d/%s", client, n, name), func(b *testing.B) {
					tx, _ := clients(b, url)[client](b)
					b.ReportAllocs()
					for b.Loop() {
						if err := write(tx); err != nil {
							b.Fatal(err)
						}
					}
					perEvent(b, n)
				})
			}
		}
	}
}

// BenchmarkBareInsert is the cost of an event without the library, with a
// parameter for each column.
func BenchmarkBareInsert(b *testing.B) {
	tx := begin(b, newDB(b, outbox.Schema))
	insert(b, tx)
	b.ReportAllocs()
	for b.Loop() {
		insert(b, tx)
	}
	perEvent(b, 1)
}

func insert(b *testing.B, tx pgx.Tx) {
	b.Helper()
	id, err := outbox.NewID()
	if err != nil {
		b.Fatal(err)
	}
	_, err = tx.Exec(b.Context(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers) VALUES ($1, $2, $3, $4, $5, $6)`,
		id.String(), "order", "1", "Placed", `{"id":"1"}`, nil)
	if err != nil {
		b.Fatal(err)
	}
}

func perEvent(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
}
