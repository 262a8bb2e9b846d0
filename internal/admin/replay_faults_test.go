package admin

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/cli"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// A topic, a key or an id without a row is a mistake, and named before anything is
// published.
func TestReplayNamesWhatNoRowHas(t *testing.T) {
	p := newPublished(t)
	p.write(1, 2, 3)
	replay := func(opts ReplayOptions) (*RepairReport, error) {
		opts.AuditOptions, opts.Name, opts.Publish = p.options(opts.AuditOptions), "again", true
		return Replay(p.ctx(), p.Config, opts)
	}
	late := time.Date(2026, 1, 1, 0, 0, 3, 0, time.UTC)
	for words, opts := range map[string]ReplayOptions{
		`routed to topic "outbox.event.ordr"`:     {AuditOptions: AuditOptions{Topics: []string{"outbox.event.ordr", "outbox.event.order"}}},
		`has the key "k7", "k9"`:                  {AuditOptions: AuditOptions{Keys: []string{"k9", "k1", "k7"}}},
		`has the key "k1"`:                        {AuditOptions: AuditOptions{Keys: []string{"k1"}, Since: late}},
		`has the id "x"`:                          {AuditOptions: AuditOptions{IDs: []string{"x", eventID(1)}, Topics: []string{"outbox.event.order"}}},
		`--to "` + p.Errors.DeadLetterTopic + `"`: {To: p.Errors.DeadLetterTopic, AuditOptions: AuditOptions{Until: time.Now()}},
	} {
		_, err := replay(opts)
		wantClass(t, err, failure.Config, words)
	}
	if r := must.Get(replay(ReplayOptions{AuditOptions: AuditOptions{Until: late.AddDate(-1, 0, 0)}}))(t); r.Rows != 0 {
		t.Errorf("%+v", r) // a time without rows is none
	}
	for _, as := range []struct{ column, key string }{{"char(9)", "k1"}, {"bytea USING convert_to(aggregateid, 'UTF8')", `\x6b31`}} {
		p.exec(`ALTER TABLE outbox ALTER aggregateid TYPE ` + as.column)
		if r := must.Get(replay(ReplayOptions{AuditOptions: AuditOptions{Keys: []string{as.key}}}))(t); r.Rows != 1 {
			t.Errorf("%s: %+v", as.column, r)
		}
	}
}

// A refused record becomes one dead letter, however often the replay is
// repeated.
func TestReplayOfATopicBuriesOnce(t *testing.T) {
	for _, mode := range []string{sink.DeliveryAtLeastOnce, sink.DeliveryExactlyOnce} {
		t.Run(mode, func(t *testing.T) {
			p := newPublished(t)
			p.Sink.Kafka.Delivery = mode
			p.Errors.OnBadEvent = transform.BadEventDeadLetter
			p.broker.CreateTopic(t, "source", 1, nil)
			p.broker.CreateTopic(t, "elsewhere", 1, map[string]string{"max.message.bytes": "1000"})
			p.wrote("source", past{"a", "k0", "1", 1}, past{"b", "k0", strings.Repeat("x", 2000), 1}, past{"c", "k0", "3", 2})
			all := TopicReplayOptions{From: "source", To: "elsewhere", Until: time.Now()}
			if r := must.Get(p.again(true, all))(t); r.Published != 2 || r.DeadLettered != 1 {
				t.Errorf("%+v", r)
			}
			if r := must.Get(p.again(true, all))(t); r.Before != 3 || r.Published+r.DeadLettered != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Without the lock against a second operator nothing more is published, and a
// repetition finds what was published.
func TestReplayWithoutItsLockEnds(t *testing.T) {
	p := newPublished(t)
	p.broker.CreateTopic(t, "source", 1, nil)
	p.broker.CreateTopic(t, "elsewhere", 1, nil)
	p.wrote("source", pastEvents...)
	all := TopicReplayOptions{From: "source", To: "elsewhere", Until: time.Now(), Rate: 1}
	ended := make(chan error, 1)
	go func() {
		_, err := p.again(true, all)
		ended <- err
	}()
	p.broker.Consume(t, []string{"elsewhere"}, kafkatest.Count(1))
	p.cutLock()
	wantClass(t, <-ended, failure.Transient, "the lock against a second replay")
	all.Rate = 0
	r := must.Get(p.again(true, all))(t)
	if r.Published == 0 || r.Before+r.ToPublish+r.Repeated < 6 {
		t.Errorf("%+v", r)
	}
	p.broker.Consume(t, []string{"elsewhere"}, kafkatest.Count(6))
}

// A replay that ends in the middle, with its session in PostgreSQL or by a signal, names
// the way on; a repetition finishes it.
func TestAReplayThatIsInterrupted(t *testing.T) {
	p := newPublished(t)
	p.broker.CreateTopic(t, "elsewhere", 1, nil)
	p.write(1, 2, 3, 4, 5, 6)
	replay := func(ctx context.Context, rate int) (*RepairReport, error) {
		return Replay(ctx, p.Config, ReplayOptions{AuditOptions: p.options(AuditOptions{Until: time.Now()}), Name: "again", To: "elsewhere", Rate: rate, Publish: true})
	}
	for written, interrupt := range []func(context.CancelCauseFunc){
		func(context.CancelCauseFunc) { p.cutLock() },
		func(stop context.CancelCauseFunc) { stop(cli.Stopped{Signal: syscall.SIGHUP}) },
	} {
		ctx, stop := context.WithCancelCause(p.ctx())
		ended := make(chan error, 1)
		go func() {
			_, err := replay(ctx, 1)
			ended <- err
		}()
		p.broker.Consume(t, []string{"elsewhere"}, kafkatest.Count(2*written+1))
		interrupt(stop)
		err := <-ended
		stop(nil)
		wantClass(t, err, failure.Transient)
		must.Contain(t, failure.RemedyOf(err), "repeat the command, which finds what was published until now")
	}
	r := must.Get(replay(p.ctx(), 0))(t)
	if r.Found == 0 || r.Found+r.Published != 6 {
		t.Errorf("%+v", r)
	}
	p.broker.Consume(t, []string{"elsewhere"}, kafkatest.Count(6))
}

// cutLock ends the session with the lock of a replay or a redrive.
func (p *published) cutLock() {
	p.t.Helper()
	conn := must.Get(pgx.Connect(p.ctx(), p.Source.URL.Reveal()))(p.t)
	defer conn.Close(context.Background())
	await.Until(p.t, "the session with the lock", func() bool {
		var cut int
		must.OK(p.t, conn.QueryRow(p.ctx(), `SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&cut))
		return cut > 0
	})
}

func TestRedriveWithoutItsLockEnds(t *testing.T) {
	b := newBuried(t)
	b.broker.CreateTopic(t, orders, 1, nil)
	for n := range 6 {
		b.bury(letter{fmt.Sprint("id", n), orders, fmt.Sprint("k", n), "x", transform.ReasonMissingTopic, nil})
	}
	ended := make(chan error, 1)
	go func() {
		_, err := b.redrive(true, RedriveOptions{Rate: 1})
		ended <- err
	}()
	b.broker.Consume(t, []string{orders}, kafkatest.Count(1))
	b.cutLock()
	wantClass(t, <-ended, failure.Transient, "the lock against a second dead-letters redrive")
}

// opened is a replay behind the choice of its records.
func (p *published) opened(opts TopicReplayOptions) *topicReplay {
	p.t.Helper()
	opts.Name, opts.Timeout = "again", patience
	r := &topicReplay{notes: &notes{to: io.Discard}, cfg: p.Config, opts: opts, cluster: newCluster(p.Config), asked: setOf(opts.IDs), keys: setOf(opts.Keys), report: &TopicReplay{}}
	must.OK(p.t, r.cluster.connect(p.ctx()))
	p.t.Cleanup(r.cluster.client.Close)
	r.ids = must.Get(audit.New(p.t.TempDir()))(p.t)
	p.t.Cleanup(r.ids.Close)
	must.OK(p.t, r.choose(p.ctx()))
	return r
}

// Records far apart do not keep the records between them in memory.
func TestReplayOfFewAmongMany(t *testing.T) {
	const few, between = 60, 900_000
	p := newPublished(t)
	p.broker.CreateTopic(t, "source", 1, nil)
	client := p.broker.Client(t, kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer client.Close()
	for n := range few {
		must.OK(t, client.ProduceSync(p.ctx(), past{fmt.Sprint("id", n), "few", "x", 1}.record("source", n),
			past{fmt.Sprint("other", n), "many", strings.Repeat("x", between), 1}.record("source", n)).FirstErr())
	}
	r := p.opened(TopicReplayOptions{From: "source", To: "elsewhere", Keys: []string{"few"}})
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, records := heap(), 0
	must.OK(t, r.groups(p.ctx(), func(group []*kgo.Record) error {
		if records += len(group); heap()-before > few*between/2 {
			t.Errorf("%d records take %d bytes", len(group), heap()-before)
		}
		runtime.KeepAlive(group)
		return nil
	}))
	if records != few {
		t.Errorf("%d records", records)
	}
}

// A topic made again has other records at the same places: none of them is published.
func TestReplayOfATopicMadeAgain(t *testing.T) {
	p := newPublished(t)
	p.broker.CreateTopic(t, "source", 1, nil)
	p.wrote("source", pastEvents...)
	r := p.opened(TopicReplayOptions{From: "source", To: "elsewhere", Until: time.Now()})
	admin := kadm.NewClient(r.cluster.client)
	must.Get(admin.DeleteTopics(p.ctx(), "source"))(t)
	await.Until(t, "the topic is gone", func() bool { return must.Get(admin.ListTopics(p.ctx(), "source"))(t)["source"].Err != nil })
	p.broker.CreateTopic(t, "source", 1, nil)
	var others []past
	for _, e := range pastEvents {
		others = append(others, past{"new " + e.id, e.key, e.value, e.lsn})
	}
	p.wrote("source", others...)
	err := r.groups(p.ctx(), func(group []*kgo.Record) error {
		t.Errorf("%d records", len(group))
		return nil
	})
	wantClass(t, err, failure.Transient, "made again")
}

// Where brokers do not tell the policy of a topic, the remedy is the right to ask.
func TestReplayWithoutTheRightToAskForSettings(t *testing.T) {
	broker := kafkatest.Start(t, kafkatest.Logins("cdc"))
	p := newPublished(t)
	p.broker = broker
	p.Sink.Kafka.Brokers = broker.Brokers
	p.Sink.Kafka.SASL = sink.SASL{Mechanism: "PLAIN", Username: "cdc", Password: kafkatest.Password}
	for _, topic := range []string{"source", "elsewhere", "outbox.event.order"} {
		broker.CreateTopic(t, topic, 1, nil)
		broker.Allow(t, "cdc", kadm.NewACLs().Topics(topic), kadm.OpRead, kadm.OpWrite, kadm.OpDescribe)
	}
	p.wrote("source", pastEvents...)
	all := TopicReplayOptions{From: "source", To: "elsewhere", Until: time.Now()}
	r, err := p.again(true, all)
	wantClass(t, err, failure.Config, "may have had more records")
	if r.Published != 6 {
		t.Errorf("%+v", r)
	}
	_, err = p.again(true, all)
	wantClass(t, err, failure.Config, `brokers do not tell whether topic "elsewhere" is compacted`)
	must.Contain(t, failure.RemedyOf(err), "--operation DescribeConfigs --topic 'elsewhere'")
	p.write(1)
	p.wrote("outbox.event.order", past{eventID(1), "k1", "x", 1})
	v := must.Get(Repair(p.ctx(), p.Config, p.options(AuditOptions{}), false))(t)
	must.Contain(t, fmt.Sprint(v.Limits), "brokers do not tell whether topic", "DescribeConfigs")
}

// A row whose route has changed since is no missing row.
func TestVerifyAfterAChangeOfTheRoute(t *testing.T) {
	p := newPublished(t)
	p.write(1, 2)
	p.send("outbox.event.order", 1, 2)
	p.exec(`UPDATE outbox SET aggregatetype = 'bill' WHERE id = '` + eventID(2) + `'`)
	v, err := Verify(p.ctx(), p.Config, p.options(AuditOptions{}))
	wantClass(t, err, failure.Loss, "1 of 2 events are not in Kafka")
	if v.Alone != 0 {
		t.Errorf("%+v", v)
	}
}

// Records deleted by retention while a command works are no fault of the
// configuration.
func TestPagesOfDeletedRecords(t *testing.T) {
	p := newPublished(t)
	p.broker.CreateTopic(t, "source", 1, nil)
	p.wrote("source", pastEvents...)
	r := p.opened(TopicReplayOptions{From: "source", To: "elsewhere", Until: time.Now()})
	p.trim("source", 2)
	pages := newPages(r.cluster.client, "source", r.logs, r.reading())
	for _, at := range []LetterPlace{{0, 0}, {7, 0}} {
		_, err := pages.record(p.ctx(), at)
		wantClass(t, err, failure.Transient, "was deleted meanwhile")
	}
	must.Get(pages.record(p.ctx(), LetterPlace{0, 2}))(t)
}
