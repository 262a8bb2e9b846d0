package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// shadowed is a fixture whose slot Debezium reads, in the person of the test.
type shadowed struct {
	*published
	slot     string
	compared string // the name to compare with
}

const shadowTopic = "outbox.event.order"

func newShadowed(t *testing.T) *shadowed {
	s := &shadowed{published: newPublished(t), slot: slotName(t) + "_dbz"}
	s.compared = s.slot
	s.Event.PositionHeaders = false
	s.broker.CreateTopic(t, shadowTopic, 1, nil)
	s.exec(`SELECT pg_create_logical_replication_slot('` + s.slot + `', 'pgoutput')`)
	t.Cleanup(func() { s.exec(`SELECT pg_drop_replication_slot('` + s.slot + `')`) })
	idle := idleAfter
	idleAfter = 3 * time.Second
	t.Cleanup(func() { idleAfter = idle })
	return s
}

// confirm moves the slot on, as Debezium does once all is published.
func (s *shadowed) confirm() {
	s.exec(`SELECT pg_replication_slot_advance('` + s.slot + `', pg_current_wal_flush_lsn())`)
}

// publish writes the events' records as Debezium does.
func (s *shadowed) publish(change func(*kgo.Record), numbers ...int) {
	s.t.Helper()
	s.sendAs(shadowTopic, func(r *kgo.Record) {
		if r.Headers = r.Headers[:2]; change != nil {
			change(r)
		}
	}, numbers...)
}

// begin compares until idle. The returned function waits for the report.
func (s *shadowed) begin(opts ShadowOptions) (end func() (*ShadowReport, error)) {
	s.t.Helper()
	var r *ShadowReport
	var err error
	begun, done := make(chan struct{}), make(chan struct{})
	var first sync.Once // a second slot says so, too
	opts.Slot, opts.UntilIdle, opts.Notes = s.compared, true, writerFunc(func(b []byte) (int, error) {
		if bytes.Contains(b, []byte("events committed after")) {
			first.Do(func() { close(begun) })
		}
		return len(b), nil
	})
	ctx := s.ctx()
	go func() {
		defer close(done)
		r, err = Shadow(ctx, s.Config, opts)
	}()
	select {
	case <-begun:
	case <-done:
		s.t.Fatalf("the comparison ended: %v", err)
	case <-ctx.Done():
		s.t.Fatal("the comparison does not begin")
	}
	return func() (*ShadowReport, error) { <-done; return r, err }
}

// progress is of a comparison that serves HTTP.
type progress struct {
	Equal, Pending int64
	Starts         int
}

// reaches waits for the progress of the running comparison.
func (s *shadowed) reaches(want progress) {
	s.t.Helper()
	await.Until(s.t, fmt.Sprintf("%+v", want), func() bool {
		var now progress
		resp, err := http.Get("http://" + s.HTTP.Listen + "/status")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return json.NewDecoder(resp.Body).Decode(&now) == nil && now == want
	})
}

// noSlotLeft wants no slot beside Debezium's.
func (s *shadowed) noSlotLeft() {
	s.t.Helper()
	pgtest.Await(s.t, s.conn, `SELECT NOT EXISTS (SELECT FROM pg_replication_slots WHERE database = current_database() AND slot_name <> $1)`, s.slot)
}

func TestShadowOfTheSame(t *testing.T) {
	s := newShadowed(t)
	s.write(1)
	s.publish(nil, 1)
	end := s.begin(ShadowOptions{})
	s.write(2, 3, 4)
	s.publish(nil, 2, 3, 3, 4)
	s.confirm()
	r, err := end()
	if err != nil || r.Equal != 3 || r.Ours != 3 || r.Repeated != 1 || r.Theirs != 4 || r.Differences() != 0 || r.Starts != 1 {
		t.Errorf("%v: %+v", err, r)
	}
	must.Contain(t, text(t, r), "3 read from the log, 4 records from 1 topics", "slot "+s.slot+" is not read since")
	s.noSlotLeft()
}

func TestShadowNamesDifferences(t *testing.T) {
	s := newShadowed(t)
	end := s.begin(ShadowOptions{})
	s.write(1, 2, 3)
	s.publish(func(r *kgo.Record) { r.Value = []byte("{}") }, 1)
	s.publish(nil, 2)
	s.confirm()
	r, err := end()
	wantClass(t, err, failure.Loss, "2 of 3 events differ", "1 in their contents or place, 1 without a record there")
	if r.Different != 1 || r.Missing != 1 || r.Equal != 1 {
		t.Errorf("%+v", r)
	}
	must.Contain(t, text(t, r), "1 in value", `value "{}"`, "missing, of the commit at", eventID(3))
	if public := r.public(); len(public.Examples) != 2 || public.Examples[0].Ours.Value != nil || len(public.Examples[0].Ours.Headers) > 0 {
		t.Errorf("%+v", public)
	}
}

// A second slot begins later: events between the two are not compared, and said so.
func TestShadowAfterALostConnection(t *testing.T) {
	s := newShadowed(t)
	s.HTTP.Listen = must.Get(freeport.TakeAddress())(t)
	end := s.begin(ShadowOptions{})
	s.write(1, 2) // the second is pending, so the comparison is not idle meanwhile
	s.publish(nil, 1)
	s.reaches(progress{Equal: 1, Pending: 1, Starts: 1})
	pgtest.Await(t, s.conn, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name <> $1 AND database = current_database()`, s.slot)
	s.reaches(progress{Equal: 1, Pending: 1, Starts: 2})
	s.write(3)
	s.publish(nil, 2, 3)
	s.confirm()
	r, err := end()
	if err != nil || r.Starts != 2 || r.Equal != 3 {
		t.Errorf("%v: %+v", err, r)
	}
	must.Contain(t, text(t, r), "2 of our reader: events between two of them are not compared")
	s.noSlotLeft()
}

// With little memory the comparison waits for Debezium, and its slot keeps no more of the log
// than is allowed.
func TestShadowWaitsForDebezium(t *testing.T) {
	s := newShadowed(t)
	s.Sink.Kafka.MaxBufferedBytes = 2000
	end := s.begin(ShadowOptions{MaxRetained: 1 << 20})
	all := make([]int, 40)
	for i := range all {
		all[i] = i + 1
	}
	s.write(all...)
	s.exec(`SELECT pg_logical_emit_message(true, 'x', repeat('x', 2 << 20))`, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) SELECT gen_random_uuid(), 'order', 'k', 'Placed', '{}' FROM generate_series(1, 100)`)
	r, err := end()
	wantClass(t, err, failure.Transient, "too much of the log is kept", "which is dropped")
	if r == nil || r.Pending == 0 || r.Differences() != 0 {
		t.Errorf("%+v", r)
	}
	s.noSlotLeft()
}

// A topic deleted and made again begins with offset 0 anew: no disorder. A record deleted with the
// topic is not missing, also if Debezium confirms the record only later.
func TestShadowOfATopicMadeAgain(t *testing.T) {
	s := newShadowed(t)
	s.HTTP.Listen = must.Get(freeport.TakeAddress())(t)
	end := s.begin(ShadowOptions{})
	s.write(1, 4, 7, 10)
	s.publish(nil, 1, 4)
	s.reaches(progress{Equal: 2, Pending: 2, Starts: 1})
	admin := kadm.NewClient(s.broker.Client(t))
	must.Get(admin.DeleteTopics(s.ctx(), shadowTopic))(t) // with the records of 7 and 10
	s.broker.CreateTopic(t, shadowTopic, 1, nil)
	s.write(13)
	s.publish(nil, 13)
	s.reaches(progress{Equal: 3, Pending: 2, Starts: 1})
	s.confirm()
	r, err := end()
	wantClass(t, err, failure.Transient, "2 of 5 events were not compared")
	if r.Equal != 3 || r.Unjudged != 2 || r.Differences() != 0 {
		t.Errorf("%+v", r)
	}
}

// A wait of the publication under other names is told.
func TestShadowTellsItsWaits(t *testing.T) {
	s := newShadowed(t)
	s.Sink.Kafka.CreateTopics = false
	end := s.begin(ShadowOptions{Prefix: "missing.", For: 8 * time.Second})
	s.write(1)
	r, _ := end()
	must.Contain(t, fmt.Sprint(r.Notes), `waiting for topic "missing.`+shadowTopic+`", which does not exist`)
}

// The records, too, where asked for, under other names.
func TestShadowPublishes(t *testing.T) {
	s := newShadowed(t)
	s.broker.CreateTopic(t, "shadow."+shadowTopic, 1, nil)
	end := s.begin(ShadowOptions{Prefix: "shadow."})
	s.write(1, 2)
	s.publish(nil, 1, 2)
	s.confirm()
	if r, err := end(); err != nil || r.Equal != 2 {
		t.Errorf("%v: %+v", err, r)
	}
	got := s.broker.Consume(t, []string{"shadow." + shadowTopic}, func(all []*kgo.Record) bool { return len(all) >= 2 })
	if len(got) != 2 || string(got[1].Value) != `{"n": 2}` {
		t.Errorf("%v", got)
	}
}

func TestShadowRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*shadowed)
		class  failure.Class
		words  []string
	}{
		"a slot that is not there": {func(s *shadowed) {
			s.exec(`SELECT pg_drop_replication_slot('`+s.slot+`')`, `SELECT pg_create_logical_replication_slot('`+s.slot+`_x', 'pgoutput')`)
			s.slot += "_x"
		},
			failure.Config, []string{"Debezium's, does not exist"}},
		"polling":        {func(s *shadowed) { s.Source.Mode = config.ModePoll }, failure.Config, []string{"shadow needs a replication slot"}},
		"no Kafka":       {func(s *shadowed) { s.Sink = config.Sink{Stdout: &config.Stdout{}} }, failure.Config, []string{"there is no sink.kafka"}},
		"no publication": {func(s *shadowed) { s.exec(`DROP PUBLICATION ` + s.Source.Publication) }, failure.Config, []string{"does not exist"}},
		"nothing at all": {func(*shadowed) {}, failure.Transient, []string{"nothing was compared"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShadowed(t)
			tt.change(s)
			ctx, cancel := context.WithTimeout(s.ctx(), patience)
			defer cancel()
			_, err := Shadow(ctx, s.Config, ShadowOptions{Slot: s.compared, UntilIdle: true, Notes: io.Discard})
			wantClass(t, err, tt.class, tt.words...)
			s.noSlotLeft()
		})
	}
}

// A count of what comes again, and a takeover without it.
func TestAdoptCountsWhatComesAgain(t *testing.T) {
	s := newShadowed(t)
	s.Source.Slot, s.Source.Create = s.slot, false
	s.write(1)
	s.publish(nil, 1)
	s.confirm()
	s.write(2, 3, 4, 5)
	s.publish(nil, 2, 3, 5)
	reader := &Reader{Slot: s.slot, Publication: s.Source.Publication, Plugin: "pgoutput"}
	plan, err := Adopt(s.ctx(), s.Config, AdoptOptions{Reader: reader})
	wantClass(t, err, failure.Config, "nothing was changed")
	if r := plan.Repeated; r == nil || r.Events != 4 || r.InKafka != 3 || r.Ahead != 2 || !r.Whole || plan.Skipped != 0 {
		t.Errorf("%+v, %+v", plan, plan.Repeated)
	}
	must.Contain(t, text(t, plan), "4 events are committed, 3 of them are in Kafka already", "These 3 come again, with the same id. --skip-published leaves out 2")
	before, _, err := readSlotOf(s)
	must.OK(t, err)
	done := must.Get(Adopt(s.ctx(), s.Config, AdoptOptions{Yes: true, SkipPublished: true}))(t)
	if done.Skipped != 2 || done.From != done.Repeated.End || done.From == before {
		t.Errorf("%+v, slot at %s", done, before)
	}
	must.Contain(t, text(t, done), "2 are left out", "1 of those in Kafka come again", "run goes on from "+done.From)
	if after, _, err := readSlotOf(s); err != nil || after != before {
		t.Errorf("the slot has moved from %s to %s: %v", before, after, err)
	}
	s.wantCheck("checkpoint", OK, "fits the database")
}

// A topic that does not exist has no record, and hides none of another.
func TestAdoptCountsBesideAMissingTopic(t *testing.T) {
	s := newShadowed(t)
	s.Source.Slot, s.Source.Create = s.slot, false
	s.confirm()
	s.write(1, 2)
	s.publish(nil, 1, 2)
	for n := range 8 {
		s.exec(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'missing%d', 'k', 'Placed', '{}')`, n))
	}
	plan, err := Adopt(s.ctx(), s.Config, AdoptOptions{Reader: &Reader{Slot: s.slot, Publication: s.Source.Publication, Plugin: "pgoutput"}})
	wantClass(t, err, failure.Config, "nothing was changed")
	if r := plan.Repeated; r == nil || r.Events != 10 || r.InKafka != 2 || r.Ahead != 2 {
		t.Errorf("%+v", plan.Repeated)
	}
}

func readSlotOf(s *shadowed) (at string, active bool, err error) {
	err = s.conn.QueryRow(s.ctx(), `SELECT confirmed_flush_lsn::text, active FROM pg_replication_slots WHERE slot_name = $1`, s.slot).Scan(&at, &active)
	return at, active, err
}

func TestAdoptRefusesAConnector(t *testing.T) {
	f := adoptable(t)
	fits := Reader{Slot: f.Source.Slot, Publication: f.Source.Publication, Plugin: "pgoutput"}
	state := func(text string, runs bool) func(context.Context) (string, bool, error) {
		return func(context.Context) (string, bool, error) { return text, runs, nil }
	}
	for name, tt := range map[string]struct {
		change func(*Reader)
		words  string
	}{
		"another slot":        {func(r *Reader) { r.Slot = "other" }, `Debezium's slot.name is "other"`},
		"another publication": {func(r *Reader) { r.Publication = "other" }, `Debezium's publication.name is "other"`},
		"another plugin":      {func(r *Reader) { r.Plugin = "decoderbufs" }, "and a slot's plugin cannot be changed"},
		"a slot it drops":     {func(r *Reader) { r.DropsSlot = true }, "slot.drop.on.stop"},
		"one that is to run":  {func(r *Reader) { r.State = state("RUNNING, task FAILED", true) }, "is to run (RUNNING, task FAILED)"},
	} {
		t.Run(name, func(t *testing.T) {
			r := fits
			tt.change(&r)
			_, err := Adopt(f.ctx(), f.Config, AdoptOptions{Yes: true, Reader: &r})
			wantClass(t, err, failure.Config, tt.words)
			if f.stored() != nil {
				t.Error("a checkpoint was saved")
			}
		})
	}
	stream := f.open()
	_, err := Adopt(f.ctx(), f.Config, AdoptOptions{Yes: true, SkipPublished: true})
	wantClass(t, err, failure.Config, "who publishes meanwhile")
	f.leave(stream)
	fits.State = state("STOPPED, no task", false)
	done := must.Get(Adopt(f.ctx(), f.Config, AdoptOptions{Yes: true, Reader: &fits}))(t)
	must.Contain(t, text(t, done), "Kafka Connect tells of Debezium's connector: STOPPED, no task")
	if !done.Done {
		t.Errorf("%s", fmt.Sprint(done))
	}
}
