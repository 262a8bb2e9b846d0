package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// published is a fixture with a cluster, whose rows are partly in its topics. Its
// slot is gone.
type published struct {
	*fixture
	broker *kafkatest.Broker
}

func newPublished(t *testing.T) *published { return publishedIn(t, empty(t)) }

func publishedIn(t *testing.T, f *fixture) *published {
	f.setup()
	p := &published{fixture: f, broker: kafkatest.Start(t)}
	p.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	p.Sink.Kafka.Brokers = p.broker.Brokers
	p.Sink.Kafka.CreateTopics = true
	p.Checkpoint.Store = store.StoreKafka
	p.exec(`SELECT pg_drop_replication_slot('` + p.Source.Slot + `')`)
	return p
}

// eventID is the id of the nth event, whose order is not that of the numbers.
func eventID(n int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-000000000000", n*2654435761%(1<<32))
}

// write inserts events, each in a transaction, a second after the one before.
func (p *published) write(numbers ...int) {
	p.t.Helper()
	for _, n := range numbers {
		p.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, created_at)
			VALUES ('%s', 'order', 'k%d', 'Placed', '{"n": %d}', timestamptz '2026-01-01T00:00:00Z' + interval '1 second' * %d)`, eventID(n), n%3, n, n))
	}
}

// send writes the events' records as a connector would have.
func (p *published) send(topic string, numbers ...int) {
	p.t.Helper()
	client := p.broker.Client(p.t)
	defer client.Close()
	if resp := must.Get(kadm.NewClient(client).CreateTopics(p.ctx(), 1, 1, nil, topic))(p.t); !errors.Is(resp[topic].Err, kerr.TopicAlreadyExists) {
		must.OK(p.t, resp[topic].Err)
	}
	for _, n := range numbers {
		must.OK(p.t, client.ProduceSync(p.ctx(), &kgo.Record{
			Topic: topic, Key: fmt.Appendf(nil, "k%d", n%3), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(eventID(n))}},
		}).FirstErr())
	}
}

// look reports the missing events, mend publishes them.
func (p *published) look(opts AuditOptions) *RepairReport { return p.repair(opts, false) }
func (p *published) mend(opts AuditOptions) *RepairReport { return p.repair(opts, true) }

func (p *published) repair(opts AuditOptions, publish bool) *RepairReport {
	p.t.Helper()
	return must.Get(Repair(p.ctx(), p.Config, p.options(opts), publish))(p.t)
}

func (p *published) options(opts AuditOptions) AuditOptions {
	opts.Dir, opts.Timeout = p.t.TempDir(), patience
	if opts.Notes == nil {
		opts.Notes = io.Discard
	}
	if opts.List == 0 {
		opts.List = 100
	}
	return opts
}

// wantMissing asserts which events are missing, in their order.
func (p *published) wantMissing(r *RepairReport, found int64, numbers ...int) {
	p.t.Helper()
	var got, want []string
	for _, e := range r.Events {
		got = append(got, e.ID)
	}
	for _, n := range numbers {
		want = append(want, eventID(n))
	}
	if r.Found != found || r.Missing != int64(len(numbers)) || r.Unknown != 0 || !slices.Equal(got, want) {
		p.t.Errorf("%+v, want %d found, and missing %v", r, found, want)
	}
}

// Exactly the events without a record are missing, whichever of the topics has
// it, and they are published in order, once.
func TestRepairPublishesExactlyTheMissingEvents(t *testing.T) {
	for _, mode := range []string{sink.DeliveryAtLeastOnce, sink.DeliveryExactlyOnce} {
		t.Run(mode, func(t *testing.T) {
			const topic = "outbox.event.order"
			p := newPublished(t)
			p.Sink.Kafka.Delivery = mode
			p.Errors.OnBadEvent = transform.BadEventDeadLetter
			p.write(1, 2, 3, 4, 5, 6, 7, 8, 9)
			p.send(topic, 1, 2, 4, 8)
			p.send(p.Errors.DeadLetterTopic, 5)
			p.send("former", 6)

			r := p.look(AuditOptions{Topics: []string{"former"}})
			p.wantMissing(r, 6, 3, 7, 9)
			if want := []MissingTopic{{topic, 3}}; !slices.Equal(r.Topics, want) || r.Published != 0 {
				t.Errorf("%+v", r)
			}
			p.wantMissing(p.look(AuditOptions{}), 5, 3, 6, 7, 9) // without the former topic
			p.wantMissing(p.look(AuditOptions{Since: time.Date(2026, 1, 1, 0, 0, 4, 0, time.UTC), Until: time.Date(2026, 1, 1, 0, 0, 9, 0, time.UTC)}), 3, 6, 7)
			p.wantMissing(p.look(AuditOptions{IDs: []string{eventID(8), eventID(7)}}), 1, 7)

			r = p.mend(AuditOptions{Topics: []string{"former"}})
			if r.Published != 3 || r.DeadLettered != 0 || r.Skipped != 0 {
				t.Errorf("%+v", r)
			}
			records := p.broker.Consume(t, []string{topic}, kafkatest.Count(7))
			byKey := map[string][]string{}
			for _, rec := range records {
				if isRepaired(rec) {
					byKey[string(rec.Key)] = append(byKey[string(rec.Key)], string(rec.Value))
				}
			}
			if got := fmt.Sprint(byKey); got != `map[k0:[{"n": 3} {"n": 9}] k1:[{"n": 7}]]` {
				t.Errorf("published %s", got)
			}
			p.wantMissing(p.mend(AuditOptions{Topics: []string{"former"}}), 9)
			if n := len(p.broker.Consume(t, []string{topic}, kafkatest.Count(7))); n != 7 {
				t.Errorf("%d records", n)
			}
		})
	}
}

func isRepaired(rec *kgo.Record) bool {
	return slices.ContainsFunc(rec.Headers, func(h kgo.RecordHeader) bool { return h.Key == transform.HeaderRepair })
}

// Rows of partitions, some of them large, are found again by their places.
func TestRepairReadsPartitionsAndLargeRows(t *testing.T) {
	p := newPublished(t)
	p.exec(`DROP TABLE outbox CASCADE`,
		`CREATE TABLE outbox (outbox text, id uuid, aggregatetype text, aggregateid text, type text, payload text, created_at timestamptz) PARTITION BY HASH (id)`,
		`CREATE TABLE o_0 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 0)`,
		`CREATE TABLE o_1 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 1)`,
		`ALTER PUBLICATION cdc_outbox ADD TABLE outbox`, `ALTER PUBLICATION cdc_outbox SET (publish_via_partition_root = true)`)
	var numbers, sent []int
	for n := range 60 {
		numbers = append(numbers, n)
		if n%4 == 0 {
			sent = append(sent, n)
		}
	}
	p.write(numbers...)
	p.exec(`ALTER TABLE o_0 REPLICA IDENTITY FULL`, `ALTER TABLE o_1 REPLICA IDENTITY FULL`, `UPDATE outbox SET payload = repeat('x', 300000) WHERE aggregateid = 'k1'`)
	p.send("outbox.event.order", sent...)
	missing := slices.DeleteFunc(numbers, func(n int) bool { return n%4 == 0 })
	p.wantMissing(p.mend(AuditOptions{}), 15, missing...)
	p.wantMissing(p.look(AuditOptions{}), 60)
}

// A row whose event is on its way is not missing: the comparison waits for the
// slot, and says so where nobody reads it.
func TestRepairWaitsForTheSlot(t *testing.T) {
	p := newPublished(t)
	p.exec(`SELECT pg_create_logical_replication_slot('` + p.Source.Slot + `', 'pgoutput')`)
	p.write(1)
	_, err := Repair(p.ctx(), p.Config, p.options(AuditOptions{}), false)
	wantClass(t, err, failure.Transient, "the connector is not running (nothing reads slot")

	r, err := p.duringTheWait(func() { p.send("outbox.event.order", 1) })
	must.OK(t, err)
	p.wantMissing(r, 1)
}

// Another version of a row, or another row, is never taken for the one that was
// compared.
func TestRepairNoticesRowsThatWereMoved(t *testing.T) {
	p := newPublished(t)
	p.exec(`SELECT pg_create_logical_replication_slot('` + p.Source.Slot + `', 'pgoutput')`)
	p.write(1, 2, 3, 4, 5, 6)
	p.send("outbox.event.order", 1, 2, 3, 5, 6)
	_, err := p.duringTheWait(func() { p.exec(`CLUSTER outbox USING outbox_pkey`) })
	wantClass(t, err, failure.Transient, "were moved meanwhile")
	if n := len(p.broker.Consume(t, []string{"outbox.event.order"}, kafkatest.Count(5))); n != 5 {
		t.Errorf("%d records", n)
	}
}

// duringTheWait repairs, and does something while the slot is waited for, which is
// confirmed after that.
func (p *published) duringTheWait(do func()) (r *RepairReport, err error) {
	p.t.Helper()
	stream := p.open()
	defer catalog.Close(stream)
	waiting, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		r, err = Repair(p.ctx(), p.Config, p.options(AuditOptions{Notes: lineSeen("waiting for what is on its way", waiting)}), true)
	}()
	select {
	case <-waiting:
	case <-p.ctx().Done():
		p.t.Fatal("repair does not wait for the slot")
	}
	do()
	p.exec(`SELECT pg_logical_emit_message(true, 'test', '')`)
	mark := must.Get(catalog.ReadServer(p.ctx(), p.conn))(p.t).FlushLSN
	for confirmed := false; !confirmed; {
		msg := must.Get(stream.Next(p.ctx()))(p.t)
		if msg.End >= mark {
			stream.Confirm(msg.End)
			confirmed = true
		}
	}
	<-done
	return r, err
}

// lineSeen closes seen when a line with the words is written.
func lineSeen(words string, seen chan struct{}) io.Writer {
	return writerFunc(func(b []byte) (int, error) {
		if strings.Contains(string(b), words) {
			close(seen)
		}
		return len(b), nil
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// An event that may have had a record is not called missing.
func TestRepairSaysWhatItCannotKnow(t *testing.T) {
	const topic = "outbox.event.order"
	for name, c := range map[string]struct {
		settings map[string]string
		trim     bool
		words    string
	}{
		"compacted":       {map[string]string{"cleanup.policy": "compact"}, false, "is compacted"},
		"records deleted": {nil, true, "records before were deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublished(t)
			p.broker.CreateTopic(t, topic, 1, c.settings)
			p.write(1, 2, 3)
			p.send(topic, 1, 2)
			if c.trim {
				p.trim(topic, 1)
			}
			r := p.mend(AuditOptions{})
			if r.Missing != 0 || r.Published != 0 || r.Unknown == 0 || r.Found+r.Unknown != 3 || !strings.Contains(fmt.Sprint(r.Limits), c.words) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A second repair that publishes at the same time would publish the same.
func TestRepairIsAlone(t *testing.T) {
	p := newPublished(t)
	p.exec(`SELECT pg_advisory_lock(hashtext('cdc-outbox repair'), hashtext('` + p.Source.Slot + `'))`)
	_, err := Repair(p.ctx(), p.Config, p.options(AuditOptions{}), true)
	wantClass(t, err, failure.Config, "another repair")
	must.Get(Repair(p.ctx(), p.Config, p.options(AuditOptions{}), false))(t)
}

// trim deletes the topic's records before the offset.
func (p *published) trim(topic string, before int64) {
	p.t.Helper()
	client := p.broker.Client(p.t)
	defer client.Close()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: before})
	deleted := must.Get(kadm.NewClient(client).DeleteRecords(p.ctx(), offsets))(p.t)
	must.OK(p.t, deleted.Error())
}

func TestVerify(t *testing.T) {
	p := newPublished(t)
	p.write(1, 2, 3)
	p.send("outbox.event.order", 3, 1)
	r, err := Verify(p.ctx(), p.Config, p.options(AuditOptions{}))
	wantClass(t, err, failure.Loss, "1 of 3 events")
	if r.Found != 2 || r.Missing != 1 || r.RowSum == r.FoundSum {
		t.Errorf("%+v", r)
	}
	p.send("outbox.event.order", 2, 2)
	if r = must.Get(Verify(p.ctx(), p.Config, p.options(AuditOptions{})))(t); r.Found != 3 || r.RowSum != r.FoundSum || r.Repeated != 1 {
		t.Errorf("%+v", r)
	}
	p.exec(`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey, ALTER id DROP NOT NULL`, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (NULL, 'order', 'k', 'Placed', '{}')`)
	_, err = Verify(p.ctx(), p.Config, p.options(AuditOptions{}))
	wantClass(t, err, failure.Config, "of 1 of 4 events nothing is known")
}

// The topics of a replay choose its rows, and records in them count for no other topic.
func TestReplayOfRowsOfATopic(t *testing.T) {
	p := newPublished(t)
	p.write(1, 2, 3)
	p.exec(`UPDATE outbox SET aggregatetype = 'bill' WHERE id = '` + eventID(2) + `'`)
	replay := func(topics ...string) *RepairReport {
		return must.Get(Replay(p.ctx(), p.Config, ReplayOptions{AuditOptions: p.options(AuditOptions{Topics: topics}), Name: "again", Publish: true}))(t)
	}
	if r := replay("outbox.event.bill"); r.Rows != 1 || r.Published != 1 || r.Topics[0].Topic != "outbox.event.bill" {
		t.Errorf("%+v", r)
	}
	if r := replay("outbox.event.bill", "outbox.event.order"); r.Rows != 3 || r.Found != 1 || r.Published != 2 {
		t.Errorf("%+v", r)
	}
}

// Records whose ids no row has are counted and named, with what may have deleted the
// rows. Those of rows from other times, or from after the start, are none.
func TestVerifyNamesRecordsWithoutARow(t *testing.T) {
	const topic = "outbox.event.order"
	p := newPublished(t)
	p.write(1, 2, 3)
	p.send(topic, 1, 2, 3, 2, 7, 8)
	p.exec(`UPDATE outbox SET created_at = now() WHERE id = '` + eventID(1) + `'`)
	verify := func(opts AuditOptions) *Verification { return must.Get(Verify(p.ctx(), p.Config, p.options(opts)))(t) }
	r := verify(AuditOptions{})
	if r.Records != 6 || r.Repeated != 1 || r.Alone != 2 || len(r.AloneFirst) != 2 || r.AloneFirst[0].ID != eventID(7) || r.AloneFirst[1].Offset != 5 {
		t.Errorf("%+v", r)
	}
	if r = verify(AuditOptions{Since: time.Now().Add(-time.Hour)}); r.Rows != 1 || r.Alone != 2 {
		t.Errorf("%+v", r) // rows 2 and 3 are older than their records
	}
	p.Retention.After = time.Hour
	r = verify(AuditOptions{List: 1})
	var text strings.Builder
	must.OK(t, r.WriteText(&text))
	must.Contain(t, text.String(), "6 records read, 1 of them repetitions", "in Kafka only: 2; their rows may have been deleted by retention", eventID(7)+"  "+topic+"  0/4", "and 1 more")
	for _, opts := range []AuditOptions{{IDs: []string{eventID(1)}}, {Until: time.Now().Add(-time.Hour)}} {
		if r = verify(opts); r.Alone != 0 {
			t.Errorf("%+v", r)
		}
	}
}

// A topic that nobody creates is named, and waited for no longer than asked.
func TestRepairNamesATopicThatIsNotThere(t *testing.T) {
	p := newPublished(t)
	p.Sink.Kafka.CreateTopics = false
	p.write(1, 2)
	var notes strings.Builder
	opts := p.options(AuditOptions{Notes: &notes})
	opts.Timeout = time.Second
	r, err := Repair(p.ctx(), p.Config, opts, true)
	wantClass(t, err, failure.Transient, "within 1s")
	must.Contain(t, notes.String(), `waiting for topic "outbox.event.order"`, "kafka-topics.sh")
	if r.Missing != 2 || r.Published != 0 || !strings.Contains(fmt.Sprint(r.Limits), "does not exist") {
		t.Errorf("%+v", r)
	}
	p.send("outbox.event.order", 7)
	if r := p.mend(AuditOptions{}); r.Published != 2 {
		t.Errorf("%+v", r)
	}
}

// A bad event that stops a pipeline stops a repair; the events before it are
// published, and found by the next one.
func TestRepairStopsAtABadEvent(t *testing.T) {
	p := newPublished(t)
	p.write(1, 2)
	p.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, created_at) VALUES ('` + eventID(3) + `', 'order', '', 'Placed', '{}', '2026-01-02')`)
	p.write(4 + 86400)
	r, err := Repair(p.ctx(), p.Config, p.options(AuditOptions{}), true)
	wantClass(t, err, failure.Config, "null_key")
	if r.Published != 2 {
		t.Errorf("%+v", r)
	}
	p.Errors.OnBadEvent = transform.BadEventDeadLetter
	if r := p.mend(AuditOptions{}); r.Found != 2 || r.Published != 1 || r.DeadLettered != 1 {
		t.Errorf("%+v", r)
	}
	p.wantMissing(p.look(AuditOptions{}), 4)
}

// A replay publishes what was chosen once more, in order, and what an earlier one of
// its name has not published.
func TestReplay(t *testing.T) {
	for _, mode := range []string{sink.DeliveryAtLeastOnce, sink.DeliveryExactlyOnce} {
		t.Run(mode, func(t *testing.T) {
			const topic = "outbox.event.order"
			p := newPublished(t)
			p.Sink.Kafka.Delivery = mode
			p.write(1, 2, 3, 4, 5, 6)
			p.send(topic, 1, 2, 3, 4, 5, 6)
			replay := func(publish bool, opts ReplayOptions) *RepairReport {
				opts.AuditOptions, opts.Publish = p.options(opts.AuditOptions), publish
				return must.Get(Replay(p.ctx(), p.Config, opts))(t)
			}
			once := ReplayOptions{AuditOptions: AuditOptions{Keys: []string{"k0"}}, Name: "once"}
			p.wantMissing(replay(false, once), 0, 3, 6)
			once.IDs = []string{eventID(6)}
			if r := replay(true, once); r.Published != 1 {
				t.Errorf("%+v", r)
			}
			once.IDs = nil
			p.wantMissing(replay(false, once), 1, 3)
			if r := replay(true, once); r.Published != 1 {
				t.Errorf("%+v", r)
			}
			var got []string
			for _, rec := range p.broker.Consume(t, []string{topic}, kafkatest.Count(8)) {
				if h := rec.Headers[len(rec.Headers)-1]; h.Key == transform.HeaderReplay {
					got = append(got, string(h.Value)+" "+string(rec.Key)+" "+string(rec.Value))
				}
			}
			if want := []string{`once k0 {"n": 6}`, `once k0 {"n": 3}`}; !slices.Equal(got, want) {
				t.Errorf("published %q, want %q", got, want)
			}

			elsewhere := ReplayOptions{AuditOptions: AuditOptions{Until: time.Now()}, Name: "once", To: "replays", Rate: 1000}
			if r := replay(true, elsewhere); r.Published != 6 || r.Topics[0].Topic != "replays" {
				t.Errorf("%+v", r)
			}
			got = nil
			for _, rec := range p.broker.Consume(t, []string{"replays"}, kafkatest.Count(6)) {
				if string(rec.Key) == "k1" {
					got = append(got, string(rec.Value))
				}
			}
			if want := []string{`{"n": 1}`, `{"n": 4}`}; !slices.Equal(got, want) {
				t.Errorf("published %q, want %q", got, want)
			}
			p.wantMissing(p.look(AuditOptions{}), 6)
		})
	}
}

// A connector that was just started is waited for.
func TestRepairWaitsForAReader(t *testing.T) {
	before := readerPatience
	readerPatience = patience
	t.Cleanup(func() { readerPatience = before })
	p := newPublished(t)
	p.exec(`SELECT pg_create_logical_replication_slot('` + p.Source.Slot + `', 'pgoutput')`)
	p.write(1)
	ctx, cancel := context.WithCancel(p.ctx())
	defer cancel()
	var told []string
	notes := writerFunc(func(b []byte) (int, error) {
		switch line := string(b); {
		case strings.Contains(line, "waiting for the connector: nothing reads slot"):
			told = append(told, "a reader")
			stream := p.open()
			t.Cleanup(func() { catalog.Close(stream) })
		case strings.Contains(line, "waiting for what is on its way"):
			told = append(told, "its events")
			cancel()
		}
		return len(b), nil
	})
	if _, err := Repair(ctx, p.Config, p.options(AuditOptions{Notes: notes}), false); err == nil || !slices.Equal(told, []string{"a reader", "its events"}) {
		t.Errorf("waited for %v, %v", told, err)
	}
}

// A transaction that no coordinator knows of never ends: a repair names the command that
// ends the transaction, and does not wait for all of --timeout.
func TestRepairBehindAHangingTransaction(t *testing.T) {
	p := newPublished(t)
	p.broker = kafkatest.Start(t, kafkatest.Apache(), kafkatest.Unverified())
	p.Sink.Kafka.Brokers, p.Sink.Kafka.Delivery = p.broker.Brokers, sink.DeliveryExactlyOnce
	const topic = "outbox.event.order"
	p.broker.CreateTopic(t, topic, 1, nil)
	p.broker.Hang(t, topic, time.Now().Add(-2*settled))
	p.write(1)
	_, err := Repair(p.ctx(), p.Config, AuditOptions{Timeout: time.Hour, Notes: io.Discard}, true)
	const end = "cdc-outbox txn abort --topic outbox.event.order --partition 0 --start-offset 0 --yes; then repeat the command"
	if failure.ClassOf(err) != failure.Transient || !strings.Contains(failure.RemedyOf(err), end) {
		t.Errorf("%v; %s", err, failure.RemedyOf(err))
	}
}
