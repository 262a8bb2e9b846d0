package repair

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap/zaptest"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// fixture is an outbox with a topic.
type fixture struct {
	t      *testing.T
	url    string
	conn   *pgx.Conn
	broker *kafkatest.Broker
	opts   Options
}

const topic = "outbox.event.order"

func newFixture(t *testing.T, settings map[string]string) *fixture {
	t.Helper()
	f := &fixture{t: t, url: pgtest.Shared(t).NewDatabase(t), broker: kafkatest.Start(t)}
	f.conn = must.Get(catalog.Connect(pgtest.Context(t), f.url))(t)
	t.Cleanup(func() { catalog.Close(f.conn) })
	f.exec(`CREATE TABLE outbox (n bigint PRIMARY KEY, id text, aggregatetype text, aggregateid text, type text, payload text, created_at timestamptz DEFAULT now())`,
		`CREATE PUBLICATION outbox FOR TABLE outbox`)
	f.broker.CreateTopic(t, topic, 1, settings)
	f.opts = Options{
		Tables: []pg.Table{{Schema: "public", Name: "outbox"}}, Publication: "outbox",
		Event: transform.DefaultEvent(), Route: transform.DefaultRoute(), OnBadEvent: transform.BadEventStop,
		Times: []string{"created_at"},
		Dial:  func() (*kgo.Client, error) { return kgo.NewClient(kgo.SeedBrokers(f.broker.Brokers...)) },
		Allow: func(string) string { return "" },
		Log:   zaptest.NewLogger(t),
	}
	return f
}

func (f *fixture) exec(sql ...string) {
	f.t.Helper()
	pgtest.Exec(f.t, f.url, sql...)
}

// write inserts events, each in a transaction.
func (f *fixture) write(numbers ...int) {
	f.t.Helper()
	for _, n := range numbers {
		f.exec(fmt.Sprintf(`INSERT INTO outbox VALUES (%d, 'id %[1]d', 'order', 'k', 'Placed', '%[1]d')`, n))
	}
}

// send writes the events' records.
func (f *fixture) send(numbers ...int) {
	f.t.Helper()
	client := f.broker.Client(f.t)
	defer client.Close()
	for _, n := range numbers {
		must.OK(f.t, client.ProduceSync(pgtest.Context(f.t), &kgo.Record{
			Topic: topic, Key: []byte("k"), Headers: []kgo.RecordHeader{{Key: "id", Value: fmt.Appendf(nil, "id %d", n)}},
		}).FirstErr())
	}
}

// horizon is the id of the next transaction.
func (f *fixture) horizon() uint64 {
	f.t.Helper()
	return must.Get(catalog.NextXID(pgtest.Context(f.t), f.conn))(f.t)
}

// repair repairs, and returns the payloads published.
func (f *fixture) repair(of stream.Lacking) (published []string, err error) {
	f.t.Helper()
	ctx := pgtest.Context(f.t)
	r := must.Get(New(f.opts))(f.t)
	must.OK(f.t, r.Ready(ctx, f.conn))
	held := must.Get(catalog.HoldSnapshot(ctx, f.url, ""))(f.t)
	defer held.Release()
	f.write(1000) // behind the snapshot, as the stream has it
	of.Snapshot = held.Name
	_, err = r.Repair(ctx, f.conn, of, func(_ context.Context, items []delivery.Item) error {
		for _, it := range items {
			if h := it.Event.Record.Headers; h[len(h)-1].Key != transform.HeaderRepair {
				f.t.Errorf("headers %v, want the last one to be %s", h, transform.HeaderRepair)
			}
			published = append(published, string(it.Event.Record.Value))
		}
		return nil
	}, func(func() stream.RepairStatus) {})
	return published, err
}

func (f *fixture) wants(of stream.Lacking, want ...string) {
	f.t.Helper()
	got, err := f.repair(of)
	if err != nil || !slices.Equal(got, want) {
		f.t.Errorf("published %v, error %v; want %v", got, err, want)
	}
}

func (f *fixture) refuses(of stream.Lacking, because string) {
	f.t.Helper()
	got, err := f.repair(of)
	if failure.ClassOf(err) != failure.Loss || err == nil || !strings.Contains(err.Error(), because) || failure.RemedyOf(err) == "" {
		f.t.Errorf("published %v, error %v; want a loss with %q", got, err, because)
	}
	if len(got) > 0 {
		f.t.Errorf("published %v, want nothing", got)
	}
}

func TestTheMissingEventsArePublishedInOrder(t *testing.T) {
	f := newFixture(t, nil)
	f.write(1, 2, 3, 4, 5, 6)
	f.send(1, 2, 4)
	f.wants(stream.Lacking{Known: true}, "3", "5", "6")
}

// Rows of transactions before those that may be missing were never to be published, as
// from before the first start, or retention has taken their records.
func TestOnlyLaterTransactionsCount(t *testing.T) {
	f := newFixture(t, nil)
	f.write(1, 2)
	f.write(3)
	f.send(3)
	before := f.horizon()
	f.write(4, 5)
	f.wants(stream.Lacking{Before: before, Known: true}, "4", "5")
}

// The subtransaction has a higher id.
func TestRowsBehindASavepointCount(t *testing.T) {
	f := newFixture(t, nil)
	f.write(1)
	f.send(1)
	before := f.horizon()
	f.exec(`DO $$ BEGIN BEGIN INSERT INTO outbox VALUES (2, 'id 2', 'order', 'k', 'Placed', '2'); EXCEPTION WHEN division_by_zero THEN END; END $$`)
	f.wants(stream.Lacking{Before: before, Known: true}, "2")
}

func TestWithoutKnowledgeNothingIsPublished(t *testing.T) {
	cut := func(f *fixture) { // retention takes the first records
		client := f.broker.Client(f.t)
		defer client.Close()
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 1})
		must.Get(kadm.NewClient(client).DeleteRecords(pgtest.Context(f.t), offsets))(f.t)
	}
	for name, c := range map[string]struct {
		settings map[string]string
		prepare  func(*fixture) stream.Lacking
		because  string
	}{
		"retention reaches into the rows": {nil, func(f *fixture) stream.Lacking {
			f.write(1, 2, 3)
			f.send(1, 2)
			cut(f)
			return stream.Lacking{Known: true}
		}, "have no record, and may have had one: topic"},
		"the topic is compacted": {map[string]string{"cleanup.policy": "compact"}, func(f *fixture) stream.Lacking {
			f.write(1, 2)
			f.send(1)
			return stream.Lacking{Known: true}
		}, "is compacted"},
		"a row has no id": {nil, func(f *fixture) stream.Lacking {
			f.write(1, 2)
			f.send(1)
			f.exec(`UPDATE outbox SET id = NULL WHERE n = 2`)
			return stream.Lacking{Known: true}
		}, "have no event id"},
		"two rows share an id": {nil, func(f *fixture) stream.Lacking {
			f.write(1, 2, 3)
			f.send(1)
			f.exec(`UPDATE outbox SET id = 'id 2' WHERE n = 3`)
			return stream.Lacking{Known: true}
		}, "have the id of another row"},
		"the writer deletes rows": {nil, func(f *fixture) stream.Lacking {
			f.write(1)
			f.send(1)
			before := f.horizon()
			f.write(2)
			f.exec(`DELETE FROM outbox`)
			return stream.Lacking{Before: before, Known: true}
		}, "no row that was published is in the tables any more"},
		"rows were deleted by age": {nil, func(f *fixture) stream.Lacking {
			f.write(1)
			f.send(1)
			before := f.horizon()
			f.write(2, 3)
			f.exec(`DELETE FROM outbox WHERE n < 3`)
			return stream.Lacking{Before: before, Known: true}
		}, "no row that was published is in the tables any more"},
		"the tables are empty": {nil, func(*fixture) stream.Lacking { return stream.Lacking{} }, "the tables are empty"},
		"the ids of transactions are another log's": {nil, func(f *fixture) stream.Lacking {
			f.write(1, 2)
			return stream.Lacking{Before: f.horizon(), Known: true}
		}, "is not the one that was read"},
		"a backup was put back, and wrote past the position read": {nil, func(f *fixture) stream.Lacking {
			f.write(1)
			f.send(1)
			f.write(2) // with the id of a transaction that was read
			before := f.horizon()
			f.write(3)
			return stream.Lacking{Before: before, Known: true}
		}, "is not the one that was read"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.settings)
			f.refuses(c.prepare(f), c.because)
		})
	}
}

// The record of the last published row is read, however long ago that is.
func TestAQuietOutboxIsRepaired(t *testing.T) {
	f := newFixture(t, nil)
	f.write(1, 2)
	f.send(1, 2)
	f.exec(`UPDATE outbox SET created_at = now() - interval '9 days' WHERE n = 1`, `UPDATE outbox SET created_at = now() - interval '2 days' WHERE n = 2`)
	before := f.horizon()
	f.write(3)
	f.exec(`UPDATE outbox SET created_at = now() + interval '2 hours' WHERE n = 3`)
	f.wants(stream.Lacking{Before: before, Known: true}, "3")
}

// The connector's own retention deletes published rows only.
func TestRetentionOfTheConnectorHidesNothing(t *testing.T) {
	f := newFixture(t, nil)
	f.opts.Retention = true
	f.write(1)
	f.send(1)
	before := f.horizon()
	f.exec(`DELETE FROM outbox`)
	f.write(2)
	f.wants(stream.Lacking{Before: before, Known: true}, "2")
}

// Records of rows from before are older than retention, and those rows do not count.
func TestRetentionBeforeTheRowsIsNoObstacle(t *testing.T) {
	f := newFixture(t, nil)
	f.write(1, 2)
	f.send(1, 2)
	client := f.broker.Client(t)
	defer client.Close()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 1})
	must.Get(kadm.NewClient(client).DeleteRecords(pgtest.Context(t), offsets))(t)
	f.opts.Times = nil // or the rows were as old as the records, but for the clocks
	before := f.horizon()
	f.write(3)
	f.refuses(stream.Lacking{Before: before, Known: true}, "may have had one")
	f.opts.Times = []string{"created_at"}
	f.exec(`DELETE FROM outbox WHERE n = 1000`, `UPDATE outbox SET created_at = now() + interval '2 hours' WHERE n = 3`)
	f.wants(stream.Lacking{Before: before, Known: true}, "3")
}
