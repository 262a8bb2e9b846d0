package admin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// withTopic makes the topic of the rows, with settings of its own.
func (f *fixture) withTopic(settings map[string]string) {
	f.t.Helper()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(f.Sink.Kafka.Brokers...)))(f.t)
	defer client.Close()
	configs := make(map[string]*string)
	for key, value := range settings {
		configs[key] = &value
	}
	must.Get(kadm.NewClient(client).CreateTopic(f.ctx(), 1, 1, configs, "outbox.event.order"))(f.t)
}

// The age of waiting events is compared with how long the topic keeps records, and takes
// them, in each mode of their time.
func TestCheckOfRecordTimes(t *testing.T) {
	const name = "kafka.record_time outbox.event.order"
	commit := func(f *fixture) { f.Event.RecordTime = transform.RecordTimeCommit }
	for _, tt := range []struct {
		name     string
		settings map[string]string
		do       func(*fixture)
		outcome  Outcome
		words    string
	}{
		{"published", map[string]string{"retention.ms": "60000"}, func(*fixture) {}, OK, "none is deleted early"},
		{"published, and a bound of seconds", map[string]string{"message.timestamp.after.max.ms": "5000"}, func(*fixture) {}, Warn,
			`message.timestamp.after.max.ms of topic "outbox.event.order" is 5s`},
		{"commit, and an hour waits", map[string]string{"retention.ms": "3600000"}, commit, Warn, "keeps records for 1h0m0s"},
		{"commit, and days of retention", map[string]string{"retention.ms": "604800000"}, commit, OK, "older than 84h0m0s"},
		{"commit, without retention", map[string]string{"retention.ms": "-1"}, commit, OK, "deletes nothing by time"},
		{"commit, compacted", map[string]string{"cleanup.policy": "compact", "retention.ms": "60000"}, commit, OK, "deletes nothing by time"},
		{"commit, and brokers give the time", map[string]string{"retention.ms": "60000", "message.timestamp.type": "LogAppendTime"}, commit, OK, "LogAppendTime"},
		{"commit, and old ones are refused", map[string]string{"retention.ms": "-1", "message.timestamp.before.max.ms": "60000"}, commit, Warn,
			"brokers refuse older ones"},
		{"a column", map[string]string{"retention.ms": "3600000"}, func(f *fixture) {
			f.exec(`ALTER TABLE outbox ADD COLUMN happened_at timestamptz`)
			f.Event.Timestamp = "happened_at"
		}, Warn, "keeps records for 1h0m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := sound(t)
			f.withKafka()
			f.withTopic(tt.settings)
			cp := f.save()
			cp.SavedAt, cp.Epoch = time.Now().Add(-time.Hour), cp.Epoch+1
			f.put(cp)
			f.insert("order", "1", "{}")
			tt.do(f)
			f.wantCheck(name, tt.outcome, tt.words)
		})
	}
	t.Run("nothing waits", func(t *testing.T) {
		f := sound(t)
		f.withKafka()
		f.withTopic(map[string]string{"retention.ms": "3600000"})
		f.insert("order", "1", "{}")
		commit(f)
		// Reads prune catalogs after a move of the slot, which moves the end of the log
		// once more.
		await.Until(t, "a check before which nothing is written", func() bool {
			f.exec(`SELECT pg_replication_slot_advance('` + f.Source.Slot + `', pg_current_wal_flush_lsn())`)
			cp := f.save()
			cp.SavedAt, cp.Epoch = time.Now().Add(-time.Hour), cp.Epoch+1
			f.put(cp)
			return slices.ContainsFunc(Check(f.ctx(), f.Config).Findings, func(found Finding) bool {
				return found.Name == name && found.Outcome == OK && strings.Contains(found.Detail, "older than 30m0s")
			})
		})
	})
	t.Run("settings that may not be read", func(t *testing.T) {
		f := sound(t)
		c := f.withKafka(kfake.SeedTopics(1, "outbox.event.order"))
		f.insert("order", "1", "{}")
		commit(f)
		c.ControlKey(int16(kmsg.DescribeConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			resp := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
			for _, asked := range r.(*kmsg.DescribeConfigsRequest).Resources {
				one := kmsg.NewDescribeConfigsResponseResource()
				one.ResourceType, one.ResourceName, one.ErrorCode = asked.ResourceType, asked.ResourceName, 29
				resp.Resources = append(resp.Resources, one)
			}
			return resp, nil, true
		})
		f.wantCheck(name, Warn, "is not known")
	})
	t.Run("poll", func(t *testing.T) {
		f := pollFixture(t)
		f.setup()
		f.withKafka()
		f.Checkpoint = store.Options{Store: store.StoreNone}
		f.withTopic(map[string]string{"retention.ms": "3600000"})
		f.insert("order", "1", "{}")
		f.exec(`UPDATE outbox SET created_at = now() - interval '40 minutes'`)
		commit(f)
		f.wantCheck(name, Warn, "keeps records for 1h0m0s")
	})
}

func TestCheckComparesClocks(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Apache())
	f := sound(t)
	f.withKafka()
	f.Sink.Kafka.Brokers = b.Brokers
	f.wantCheck("postgresql.clock", OK, "agree within")
	f.wantCheck("kafka.clock", OK, "agree within")

	for _, tt := range []struct {
		ahead, give time.Duration
		outcome     Outcome
		words       string
	}{
		{3 * time.Second, 0, OK, "agree within 3s"},
		{-15 * time.Second, 6 * time.Second, OK, "agree within 21s"},
		{2 * time.Hour, time.Second, Warn, "X is 2h0m0s ahead of this machine's: so"},
		{-time.Minute, time.Second, Warn, "X is 1m0s behind this machine's: so"},
	} {
		d := &doctor{}
		d.clock("clock", "X", tt.ahead, tt.give, "so")
		wantFinding(t, &d.report, "clock", tt.outcome, tt.words)
	}
}

// A database with a clock further ahead than the topic allows.
func TestCheckOfCommitTimesAhead(t *testing.T) {
	cfg := config.Default()
	cfg.Event.RecordTime = transform.RecordTimeCommit
	d := &doctor{session: &session{cfg: &cfg}, ahead: 2 * time.Hour}
	d.askedTimes("times", topicTimes{topic: "t", Times: sink.TimesOf(map[string]string{"message.timestamp.after.max.ms": "3600000", "message.timestamp.before.max.ms": "9223372036854775807"})}, backlogAge{})
	wantFinding(t, &d.report, "times", Warn, "PostgreSQL's clock is 2h0m0s ahead")
}
