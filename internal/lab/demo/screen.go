package demo

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/orders"
)

// screen prints the demo in at most 100 columns. Errors of writing are not
// the demo's: it goes on without a reader.
type screen struct {
	out   io.Writer
	color bool
}

func newScreen(out io.Writer, color bool) *screen { return &screen{out: out, color: color} }

// style is an ANSI "select graphic rendition" code.
type style string

const (
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

// paint colours the text where colours are allowed.
func (s *screen) paint(st style, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + string(st) + "m" + text + "\x1b[0m"
}

func (s *screen) printf(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func (s *screen) heading(text string) { s.printf("\n%s", s.paint(bold, text)) }

func (s *screen) title() {
	s.printf("%s: rows committed in PostgreSQL arrive in Kafka", s.paint(bold, "cdc-outbox demo"))
	s.heading("Starting")
}

func (s *screen) step(text string) { s.printf("  %s %s", s.paint(green, "✓"), text) }

// progress takes lines about longer work.
func (s *screen) progress() io.Writer { return &stepWriter{s} }

type stepWriter struct{ screen *screen }

func (w *stepWriter) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		w.screen.printf("  … %s", bytes.TrimSpace(line))
	}
	return len(p), nil
}

// ready says that the connector runs and where to look on.
func (s *screen) ready(st *stage) {
	s.step(fmt.Sprintf("the connector, reading replication slot %s", st.config.Source.Slot))
	s.heading("Watch it in a browser, for as long as this runs")
	s.printf("  %s", s.paint(bold, "http://"+st.config.HTTP.Listen+"/"))
	s.heading("Look for yourself, from another terminal")
	s.printf("  psql '%s'", st.postgres.URL(database))
	s.printf("  kcat -b %s -C -t %s -f 'key %%k  %%h\\n%%s\\n'", st.brokers[0], topic)
	s.printf("  curl -s http://%s/status", st.config.HTTP.Listen)
	s.printf("  and in psql, an event of your own:")
	s.printf("  INSERT INTO outbox (aggregatetype, aggregateid, type, payload)")
	s.printf("         VALUES ('%s', '42', 'Mine', '{\"hello\": \"world\"}');", orders.AggregateType)
	s.heading("Orders being placed, their events arriving")
	s.printf("%s", s.paint(dim, s.row("time", "who", "order", "event", "WAL → topic/partition@offset", "event id", "latency")))
}

// row lays out a line; the columns are wide enough for the demo's values.
func (s *screen) row(at, who, order, event, text, id, latency string) string {
	return strings.TrimRight(fmt.Sprintf("%s %s %s %s %s %s %s",
		pad(at, 8), pad(who, 5), pad(order, 10), pad(event, 12), pad(text, 42), pad(id, 8), latency), " ")
}

// change shows a transaction of the order service.
func (s *screen) change(c change) {
	o := c.Order
	end := s.paint(green, "COMMIT")
	if c.RolledBack {
		end = s.paint(yellow, "ROLLBACK")
	}
	text := fmt.Sprintf("%s: %s, %s", o.Customer, o.Item, money(o.Total))
	s.printf("%s", s.row(clock(c.at), "shop", fmt.Sprintf("order %d", o.ID), string(o.Status), text, short(c.EventID), end))
}

// record shows an arrival.
func (s *screen) record(a arrival, latency time.Duration) { s.line(a, millis(latency)) }

// foreignRecord shows the record of a row the user wrote.
func (s *screen) foreignRecord(a arrival) { s.line(a, "yours") }

func (s *screen) line(a arrival, last string) {
	text := fmt.Sprintf("%s → %s", a.Header("cdc-lsn"), a.place())
	s.printf("%s", s.paint(cyan, s.row(clock(a.at), "kafka", "key "+a.Key, a.Header("eventType"), text, short(a.Header("id")), last)))
}

// firstRecord shows an arrival with all its parts.
func (s *screen) firstRecord(a arrival, latency time.Duration) {
	s.record(a, latency)
	field := func(name, value string) {
		s.printf("%s%s %s", strings.Repeat(" ", 15), s.paint(dim, pad(name, 10)), value)
	}
	field("key", a.Key)
	for _, h := range a.Headers {
		field("header", h.Key+" = "+h.Value)
	}
	for i, part := range wrap(a.Value, 100-15-11) {
		if i == 0 {
			field("value", part)
		} else {
			field("", part)
		}
	}
}

// summary shows the outcome.
func (s *screen) summary(r report, whole bool) {
	s.heading("Summary")
	line := func(name, format string, args ...any) {
		s.printf("  %s %s", pad(name, 12), fmt.Sprintf(format, args...))
	}
	line("events", "%d committed, %d arrived%s", r.committed, r.arrived, s.either(r.arrived == r.committed, ", all of them", ""))
	line("duplicates", "%d", r.duplicates)
	line("rolled back", "%s, %s", plural(r.rolledBack, "transaction"),
		s.either(r.ghosts == 0, "never seen in Kafka", fmt.Sprintf("%d OF THEIR EVENTS ARRIVED", r.ghosts)))
	line("order", "%s", s.either(r.faults == 0,
		fmt.Sprintf("verified: the events of each of %d keys arrived as committed", r.keys),
		plural(r.faults, "EVENT")+" ALTERED OR OUT OF ORDER"))
	if r.sinceBegin > 0 {
		line("latency", "median %s, p99 %s, from the return of COMMIT to the consumer", millis(r.median), millis(r.p99))
		line("first event", "%.1f s after the demo began, %.1f s after the connector started", r.sinceBegin.Seconds(), r.sinceConnector.Seconds())
	}
	s.heading("What to try next")
	if whole {
		s.printf("  make demo                                 endless, to look at with psql and kcat")
	} else {
		s.printf("  make demo EVENTS=10000                    how fast it goes")
	}
	s.printf("  cdc-outbox setup -c FILE --print          the SQL for your own database")
	s.printf("  cdc-outbox check -c FILE                  is everything ready?")
	s.printf("  docker compose up --build                 the same with Apache Kafka")
}

// either paints the good outcome green and the bad outcome red.
func (s *screen) either(ok bool, good, bad string) string {
	if ok {
		return s.paint(green, good)
	}
	return s.paint(red, bad)
}

// place is topic/partition@offset.
func (a *arrival) place() string { return fmt.Sprintf("%s/%d@%d", a.Topic, a.Partition, a.Offset) }

func clock(t time.Time) string { return t.Format(time.TimeOnly) }

func money(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// short is enough of an event id to find it again: the end, as ids of version 7
// begin with the time.
func short(id string) string { return id[max(0, len(id)-8):] }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// millis is in seconds for long durations, or the column would be too narrow.
func millis(d time.Duration) string {
	if d >= 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}
