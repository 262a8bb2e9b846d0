package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Ids of two tables with sequences of their own are the same numbers.
func TestAnIDOfAnotherTableIsNoRecord(t *testing.T) {
	p := newPublished(t)
	p.exec(`DROP TABLE outbox CASCADE`)
	p.Source.Tables = nil
	for _, table := range []string{"orders", "bills"} {
		p.exec(`CREATE TABLE `+table+` (id bigserial PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text, created_at timestamptz DEFAULT now())`,
			`ALTER PUBLICATION cdc_outbox ADD TABLE `+table)
		p.Source.Tables = append(p.Source.Tables, pg.Table{Schema: "public", Name: table})
	}
	for _, table := range []string{"orders", "bills", "orders", "bills"} {
		p.exec(`INSERT INTO ` + table + ` (aggregatetype, aggregateid, type, payload) VALUES ('` + table + `', 'k', 'T', '{}')`)
	}
	both := p.Source.Tables
	p.Source.Tables = both[:1]
	if r := p.mend(AuditOptions{}); r.Published != 2 {
		t.Errorf("%+v", r)
	}
	p.Source.Tables = both
	r, err := Verify(p.ctx(), p.Config, p.options(AuditOptions{}))
	wantClass(t, err, failure.Loss, "2 of 4 events")
	if want := []MissingTopic{{"outbox.event.bills", 2}}; !slices.Equal(r.Topics, want) || r.Found != 2 {
		t.Errorf("%+v", r)
	}
}

// Events of several tables are in the order of their times, not of their keys.
func TestMissingEventsOfSeveralTablesAreInOrder(t *testing.T) {
	p := newPublished(t)
	p.exec(`DROP TABLE outbox CASCADE`)
	p.Source.Tables = nil
	for n, table := range []string{"a", "b"} {
		p.exec(fmt.Sprintf(`CREATE TABLE %s (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (START %d), aggregatetype text DEFAULT 'order', aggregateid text DEFAULT 'k',
			type text DEFAULT 'T', payload text, created_at timestamptz DEFAULT now())`, table, 1+1000*(1-n)), `ALTER PUBLICATION cdc_outbox ADD TABLE `+table)
		p.Source.Tables = append(p.Source.Tables, pg.Table{Schema: "public", Name: table})
	}
	for n, table := range []string{"a", "b", "a", "b"} {
		p.exec(fmt.Sprintf(`INSERT INTO %s (payload) VALUES ('%d')`, table, n))
	}
	var got []string
	for _, e := range p.look(AuditOptions{}).Events {
		got = append(got, e.ID)
	}
	if want := []string{"1001", "1", "1002", "2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// UUIDs of version 7 of one millisecond are in the order of all their bits, also
// behind a time.
func TestMissingEventsAreInTheOrderOfTheWholeKey(t *testing.T) {
	for _, tables := range [][]string{{"outbox"}, {"outbox", "bills"}} {
		p := newPublished(t)
		p.exec(`DROP TABLE outbox CASCADE`)
		p.Source.Tables = nil
		var want []string
		for _, table := range tables {
			p.exec(`CREATE TABLE `+table+` (id uuid PRIMARY KEY, aggregatetype text DEFAULT 'order', aggregateid text DEFAULT 'k',
				type text DEFAULT 'T', payload text, created_at timestamptz DEFAULT '2026-01-01')`, `ALTER PUBLICATION cdc_outbox ADD TABLE `+table)
			p.Source.Tables = append(p.Source.Tables, pg.Table{Schema: "public", Name: table})
		}
		for _, tail := range []string{"8000-000000000001", "8000-000000000002", "bfff-ffffffffffff"} {
			want = append(want, "0198b2c0-0000-7000-"+tail)
		}
		for _, n := range []int{1, 2, 0} {
			p.exec(`INSERT INTO outbox (id) VALUES ('` + want[n] + `')`)
		}
		var got []string
		for _, e := range p.look(AuditOptions{}).Events {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d tables: %v, want %v", len(tables), got, want)
		}
	}
}

// A polled row without its mark is not in Kafka for all that is known, and the
// order is that of the polls, however the marks moved the rows.
func TestVerifyOfAPolledTable(t *testing.T) {
	p := &published{fixture: pollFixture(t), broker: kafkatest.Start(t)}
	p.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	p.Sink.Kafka.Brokers, p.Sink.Kafka.CreateTopics = p.broker.Brokers, true
	p.Source.Poll.OrderBy = []string{"seq"}
	p.exec(`CREATE TABLE outbox (seq bigserial, id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb, published boolean DEFAULT false, published_at timestamptz)`,
		`CREATE INDEX ON outbox (seq) WHERE NOT published`)
	for n := 1; n < 7; n++ {
		p.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('` + eventID(n) + `', 'order', 'k', 'T', '{}')`)
	}
	for _, mark := range []string{"false", "NULL"} {
		p.exec(`UPDATE outbox SET published = ` + mark)
		r, err := Verify(p.ctx(), p.Config, p.options(AuditOptions{}))
		wantClass(t, err, failure.Config, "of 6 of 6 events nothing is known")
		must.Contain(t, fmt.Sprint(r.Limits), "6 rows are not marked as published")
		_, err = Verify(p.ctx(), p.Config, p.options(AuditOptions{IDs: []string{eventID(1)}}))
		wantClass(t, err, failure.Config, "of 1 of 1 events nothing is known")
	}
	p.exec(`UPDATE outbox SET published = true WHERE seq <= 3`, `VACUUM outbox`, `UPDATE outbox SET published = true WHERE seq > 3`)
	p.send("outbox.event.order", 2)
	p.wantMissing(p.look(AuditOptions{}), 1, 1, 3, 4, 5, 6)
}

// The oldest record left tells of its own time only: one of somebody else may have
// any. A log whose records all went by their time tells by that time.
func TestRecordsThatWereDeleted(t *testing.T) {
	const topic = "outbox.event.order"
	old := func(p *published, ago string) {
		p.exec(`UPDATE outbox SET created_at = now() - interval '` + ago + `'`)
	}
	for name, c := range map[string]struct {
		after   func(*published)
		ago     string
		unknown int64
	}{
		"behind a foreign record": {func(p *published) { p.foreign(topic, 48*time.Hour); p.send(topic, 9) }, "3 hours", 3},
		"all, of young rows":      {func(*published) {}, "3 hours", 0},
		"all, of old rows":        {func(*published) {}, "8 days", 3},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublished(t)
			p.exec(`ALTER TABLE outbox REPLICA IDENTITY FULL`)
			p.write(1, 2, 3)
			old(p, c.ago)
			p.broker.CreateTopic(t, topic, 1, map[string]string{"retention.ms": fmt.Sprint((7 * 24 * time.Hour).Milliseconds())})
			p.send(topic, 4, 5)
			c.after(p)
			p.trim(topic, 2)
			if r := p.look(AuditOptions{}); r.Unknown != c.unknown || r.Missing != 3-c.unknown {
				t.Errorf("%+v", r)
			}
		})
	}
}

// foreign writes a record of somebody else.
func (p *published) foreign(topic string, ago time.Duration) {
	p.t.Helper()
	client := p.broker.Client(p.t)
	defer client.Close()
	must.OK(p.t, client.ProduceSync(p.ctx(), &kgo.Record{Topic: topic, Timestamp: time.Now().Add(-ago), Value: []byte("foreign")}).FirstErr())
}

// A time without a zone says too little to leave records out, and a row without a
// time may be of any.
func TestTimesThatSayLittle(t *testing.T) {
	p := newPublished(t)
	p.exec(`ALTER TABLE outbox ALTER created_at TYPE timestamp, ALTER created_at DROP NOT NULL, REPLICA IDENTITY FULL`)
	p.write(1, 2, 3)
	p.send("outbox.event.order", 1, 2)
	p.exec(`UPDATE outbox SET created_at = now() + interval '9 hours'`) // as from Tokyo
	p.wantMissing(p.look(AuditOptions{Since: time.Now().Add(4 * time.Hour)}), 2, 3)
	p.exec(`UPDATE outbox SET created_at = NULL`)
	if r := p.look(AuditOptions{Since: time.Now().Add(-time.Hour)}); r.Found != 2 || r.Unknown != 1 || r.Missing != 0 {
		t.Errorf("%+v", r)
	}
}

// A mistyped id is no good news.
func TestAnIDOfNoRow(t *testing.T) {
	p := newPublished(t)
	p.write(1)
	p.send("outbox.event.order", 1)
	for _, id := range []string{strings.ToUpper(eventID(1)), "nonsense", "it's"} {
		_, err := Verify(p.ctx(), p.Config, p.options(AuditOptions{IDs: []string{eventID(1), id}}))
		wantClass(t, err, failure.Config, "no row has the id")
	}
	_, err := Verify(p.ctx(), p.Config, p.options(AuditOptions{IDs: []string{"\x00"}}))
	wantClass(t, err, failure.Config, "no text that PostgreSQL could have")
}

// Of two rows with one id, one is published.
func TestTwins(t *testing.T) {
	p := newPublished(t)
	p.exec(`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey`)
	p.write(1, 1, 2)
	if r := p.mend(AuditOptions{}); r.Published != 2 || r.Unknown != 1 || !strings.Contains(fmt.Sprint(r.Limits), "1 rows have the id of another") {
		t.Errorf("%+v", r)
	}
	p.wantMissing(p.look(AuditOptions{}), 3)
}

// A compacted topic may have lost what a replay wrote, so a repetition would bring
// old events of a key behind newer ones. No event goes to a topic that is none.
func TestReplaysThatAreRefused(t *testing.T) {
	p := newPublished(t)
	p.write(1, 2)
	p.broker.CreateTopic(t, "latest", 1, map[string]string{"cleanup.policy": "compact"})
	replay := func(to string) error {
		_, err := Replay(p.ctx(), p.Config, ReplayOptions{AuditOptions: p.options(AuditOptions{Until: time.Now()}), Name: "again", To: to, Publish: true})
		return err
	}
	must.OK(t, replay("latest"))
	wantClass(t, replay("latest"), failure.Config, "is compacted")
	wantClass(t, replay("in valid"), failure.Config, "--to")
}

// The dead letter of a replay is not one of the event, which was never published.
func TestADeadLetterOfAReplayIsNoRecord(t *testing.T) {
	p := newPublished(t)
	p.Errors.OnBadEvent = transform.BadEventDeadLetter
	p.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('` + eventID(1) + `', 'order', '', 'Placed', '{}')`)
	r := must.Get(Replay(p.ctx(), p.Config, ReplayOptions{AuditOptions: p.options(AuditOptions{IDs: []string{eventID(1)}}), Name: "again", Publish: true}))(t)
	if r.DeadLettered != 1 {
		t.Errorf("%+v", r)
	}
	p.wantMissing(p.look(AuditOptions{}), 0, 1)
}
