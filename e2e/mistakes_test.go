package e2e

import (
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// mistake is a fault of a new configuration.
type mistake struct {
	name    string
	set     []string // key=value on top of the good configuration
	url     string   // of PostgreSQL in its file; "": the good one
	prepare func(*rollout) (set []string)
	exit    int    // exit code; 0: the instance goes on, and is not ready
	says    string // in the last line of the log, or in /readyz
	page    string // the same input in errordocs
	login   bool   // brokers refuse the login: Apache Kafka says so, and the exit code is 2; kfake hangs up
}

// ofTheStream are those of a connector reading a slot.
var ofTheStream = []mistake{
	{name: "table", page: "missing table", set: []string{"source.tables=[public.outbx]"}, exit: 2, says: "did you mean public.outbox?"},
	{name: "publication", set: []string{"source.publication=cdc_outbx"}, exit: 2, says: "did you mean source.publication: cdc_outbox?"},
	{name: "publication of another table", page: "publication without the table", prepare: func(r *rollout) []string {
		r.exec(`CREATE TABLE other (id int PRIMARY KEY)`, `CREATE PUBLICATION orders FOR TABLE other`)
		return []string{"source.publication=orders"}
	}, exit: 3, says: "is not in publication"},
	{name: "publication without inserts", page: "publication without inserts", prepare: func(r *rollout) []string {
		r.exec(`CREATE PUBLICATION deletions FOR TABLE outbox WITH (publish = 'delete')`)
		return []string{"source.publication=deletions"}
	}, exit: 3, says: "does not publish inserts"},
	{name: "slot of another plugin", page: "slot of another plugin", prepare: func(r *rollout) []string {
		r.exec(`SELECT pg_create_logical_replication_slot('foreign_` + r.database() + `', 'test_decoding')`)
		return []string{"source.slot=foreign_" + r.database()}
	}, exit: 2, says: "test_decoding"},
	{name: "slot with two_phase", page: "slot with `two_phase`", prepare: func(r *rollout) []string {
		r.exec(`SELECT pg_create_logical_replication_slot('prepared_` + r.database() + `', 'pgoutput', false, true)`)
		return []string{"source.slot=prepared_" + r.database()}
	}, exit: 2, says: "two_phase"},
	{name: "id column", set: []string{"event.id=nosuch"}, exit: 2, says: "nosuch"},
	{name: "key column", page: "missing column", set: []string{"event.key=nosuch"}, exit: 2, says: "nosuch"},
	{name: "type column", set: []string{"event.type=nosuch"}, exit: 2, says: "nosuch"},
	{name: "payload column", set: []string{"event.payload=nosuch"}, exit: 2, says: "nosuch"},
	{name: "timestamp column", set: []string{"event.timestamp=nosuch"}, exit: 2, says: "nosuch"},
	{name: "additional column", set: []string{"event.additional=[nosuch:header]"}, exit: 2, says: "nosuch"},
	{name: "route column", set: []string{"route.by=nosuch"}, exit: 2, says: "nosuch"},
	{name: "column of another type", set: []string{"event.timestamp=payload"}, exit: 2, says: "payload"},
	{name: "another checkpoint topic", set: []string{"checkpoint.topic=others"}, says: "saves its checkpoints elsewhere"},
	{name: "another checkpoint key", set: []string{"checkpoint.key=other"}, says: "saves its checkpoints elsewhere"},
	{name: "checkpoints in PostgreSQL", set: []string{"checkpoint.store=postgres"}, says: "saves its checkpoints elsewhere"},
	{name: "checkpoints in a file", prepare: func(r *rollout) []string {
		return []string{"checkpoint.store=file", "checkpoint.path=" + filepath.Join(r.t.TempDir(), "checkpoint")}
	}, says: "saves its checkpoints elsewhere"},
	{name: "a directory that is missing", set: []string{"checkpoint.store=file", "checkpoint.path=/nosuch/checkpoint"}, exit: 2, says: "/nosuch"},
	{name: "a checkpoint table of somebody else", prepare: func(r *rollout) []string {
		r.exec(`CREATE TABLE IF NOT EXISTS foreign_table (id int)`)
		return []string{"checkpoint.store=postgres", "checkpoint.table=foreign_table"}
	}, exit: 2, says: "foreign_table"},
	{name: "another database", page: "slot of another database", prepare: func(r *rollout) []string {
		u := must.Get(url.Parse(r.url))(r.t)
		u.Path = "/postgres"
		return []string{"source.url=" + u.String()}
	}, exit: 2, says: "belongs to database"},
	{name: "role without REPLICATION", page: "role without REPLICATION", prepare: func(r *rollout) []string {
		return []string{"source.url=" + r.as("poor_"+r.database(), "LOGIN PASSWORD 'pw'")}
	}, exit: 2, says: "REPLICATION"},
	{name: "right to Kafka's checkpoints", set: []string{"sink.kafka.sasl.username=writer"}, exit: 2, says: "cdc-outbox.checkpoints"},
	{name: "right to write Kafka's checkpoints", set: []string{"sink.kafka.sasl.username=reader"}, says: `write to topic \"cdc-outbox.checkpoints.`},
	{name: "right to the topics of events", set: []string{"sink.kafka.sasl.username=keeper"}, says: `topic \"` + rolloutTopic + `\"`},
	mistypedSlot,
	newTopics,
	{name: "slot and publication", prepare: func(r *rollout) []string {
		return []string{"source.slot=mistyped_" + r.database(), "source.publication=mistyped"}
	}, exit: 2, says: "did you mean source.slot: rollout_"},
	{name: "slot, and no checkpoints", prepare: func(r *rollout) []string {
		return []string{"source.slot=mistyped_" + r.database(), "checkpoint.store=none"}
	}, exit: 2, says: "did you mean source.slot: rollout_"},
	{name: "no checkpoints", set: []string{"checkpoint.store=none"}, exit: 2, says: "saves checkpoints"},
	{name: "polling", set: []string{"source.mode=poll", "source.poll.after_publish=delete", "source.poll.order_by=[type]"}, exit: 2, says: "is read from slot"},
	{name: "delivery", set: []string{"sink.kafka.delivery=exactly_once", "sink.kafka.sasl.username=single"}, exit: 2, says: "transactional"},
	{name: "exactly once and polling", page: "`delivery: exactly_once` with polling", set: []string{"source.mode=poll", "sink.kafka.delivery=exactly_once"}, exit: 2, says: "cannot be exactly_once with source.mode: poll"},
	{name: "boundaries", page: "`transaction_boundaries` without `exactly_once`", set: []string{"sink.kafka.transaction_boundaries=true"}, exit: 2, says: "needs sink.kafka.delivery: exactly_once"},
	{name: "a secret that is missing", page: "missing secret file", url: "${file:/nosuch/url}", exit: 2, says: "/nosuch/url"},
	{name: "unlogged table", page: "unlogged table, under `FOR ALL TABLES`", prepare: func(r *rollout) []string {
		r.exec(`CREATE UNLOGGED TABLE quick (LIKE outbox INCLUDING ALL)`, `CREATE PUBLICATION everything FOR ALL TABLES`)
		return []string{"source.tables=[public.quick]", "source.publication=everything"}
	}, exit: 2, says: "public.quick"},
	{name: "snapshot, and another checkpoint key", page: "`snapshot: initial` for a slot without a checkpoint", set: []string{"source.snapshot=initial", "checkpoint.key=other"}, exit: 2, says: "source.snapshot"},
	{name: "exactly once, and another checkpoint key", page: "`delivery: exactly_once` for a slot without a checkpoint", set: []string{"sink.kafka.delivery=exactly_once", "checkpoint.key=other"}, exit: 2, says: "there is no checkpoint"},
	{name: "transactions that brokers would not let last", page: "brokers whose `transaction.max.timeout.ms` is under ten seconds, with `exactly_once`", set: []string{"sink.kafka.delivery=exactly_once"}, exit: 2, says: "transaction.max.timeout.ms"},
	{name: "checkpoint topic that is not compacted", page: "checkpoint topic not compacted", prepare: func(r *rollout) []string {
		_, err := kadm.NewClient(r.client).CreateTopic(r.t.Context(), 1, 1, nil, store.Topic("others.loose", r.database()+"/rollout_"+r.database()))
		must.OK(r.t, err)
		return []string{"checkpoint.topic=others.loose"}
	}, exit: 3, says: "compact"},
}

var mistypedSlot = mistake{name: "slot", prepare: func(r *rollout) []string {
	return []string{"source.slot=mistyped_" + r.database()}
}, exit: 2, says: "did you mean source.slot: rollout_"}

// newTopics leads to missing topics.
var newTopics = mistake{name: "pattern of topics", set: []string{"route.topic=outbox.evnt.${routedByValue}"}, says: "outbox.evnt."}

// ofAny are those of any connector.
var ofAny = []mistake{
	{name: "password", page: "wrong password", prepare: func(r *rollout) []string {
		u := must.Get(url.Parse(r.url))(r.t)
		u.User = url.UserPassword(u.User.Username(), "wrong")
		return []string{"source.url=" + u.String()}
	}, exit: 2, says: "correct user and password"},
	{name: "unknown key", page: "unknown configuration key", set: []string{"errors.on_bad_evnt=skip"}, exit: 2, says: "did you mean errors.on_bad_event?"},
	{name: "unknown value", page: "value that no key allows", set: []string{"errors.on_bad_event=ignore"}, exit: 2, says: "must be one of"},
	{name: "expression", page: "regex that Go cannot express", set: []string{"route.regex=(?!a).*"}, exit: 2, says: "route.regex"},
	{name: "parameter of PostgreSQL", page: "parameter in `source.url` that nobody knows", prepare: func(r *rollout) []string {
		return []string{"source.url=" + r.with("nosuch", "1")}
	}, exit: 2, says: "nosuch"},
	{name: "TLS of PostgreSQL", page: "`sslmode=require`, and the server has no TLS", prepare: func(r *rollout) []string {
		return []string{"source.url=" + r.with("sslmode", "require")}
	}, exit: 2, says: "server refused TLS"},
	{name: "host of PostgreSQL", page: "unknown host", set: []string{"source.url=postgres://cdc@nosuch.invalid/app"}, says: "nosuch.invalid"},
	{name: "no login", page: "login missing, `sink.kafka.sasl`", set: []string{"sink.kafka.sasl.mechanism=", "sink.kafka.sasl.username=", "sink.kafka.sasl.password="}, says: "checkpoint topic"},
	{name: "unknown database", page: "unknown database", prepare: func(r *rollout) []string {
		u := must.Get(url.Parse(r.url))(r.t)
		u.Path = "/nosuch"
		return []string{"source.url=" + u.String()}
	}, exit: 2, says: "nosuch"},
	{name: "port of PostgreSQL", page: "PostgreSQL down at start", set: []string{"source.url=postgres://cdc@127.0.0.1:1/app"}, says: "connection refused"},
	{name: "address of Kafka", page: "broker down at start", set: []string{"sink.kafka.brokers=[127.0.0.1:1]"}, says: "127.0.0.1:1"},
	{name: "mechanism of Kafka's login", set: []string{"sink.kafka.sasl.mechanism=SCRAM-SHA-512"}, says: "checkpoint topic", login: true},
	{name: "password of Kafka by PLAIN", set: []string{"sink.kafka.sasl.mechanism=PLAIN", "sink.kafka.sasl.password=wrong"}, says: "checkpoint topic", login: true},
	{name: "password of Kafka", set: []string{"sink.kafka.sasl.password=wrong"}, says: "checkpoint topic", login: true},
	{name: "user of Kafka", set: []string{"sink.kafka.sasl.username=nosuch"}, says: "checkpoint topic", login: true},
	{name: "TLS", set: []string{"sink.kafka.tls.enabled=true"}, says: "checkpoint topic"},
	{name: "missing CA", set: []string{"sink.kafka.tls.ca_file=/nosuch/ca.pem"}, exit: 2, says: "/nosuch/ca.pem"},
	{name: "topic", page: "topic missing, not to be created", set: []string{"route.topic=nosuch"}, says: "topic does not exist: nosuch"},
	{name: "another cluster", prepare: func(r *rollout) []string {
		other := kafkatest.Start(r.t, kafkatest.Logins("cdc"))
		other.Allow(r.t, "cdc", kadm.NewACLs().Clusters(), kadm.OpAll)
		other.Allow(r.t, "cdc", kadm.NewACLs().Topics("cdc-outbox.checkpoints.").ResourcePatternType(kadm.ACLPatternPrefixed), kadm.OpAll)
		return []string{"sink.kafka.brokers=[" + other.Brokers[0] + "]"}
	}, says: "saves its checkpoints elsewhere"},
	{name: "right to the topic", page: "no privilege on the topic", set: []string{"route.topic=secret"}, says: `topic \"secret\"`},
	{name: "topic that brokers would not create", page: "topic not creatable", set: []string{"route.topic=nosuch", "sink.kafka.create_topics=true", "sink.kafka.replication_factor=7"}, says: `create topic \"nosuch\"`},
	{name: "dead-letter topic", page: "dead-letter topic missing", set: []string{"errors.on_bad_event=dead_letter", "errors.dead_letter_topic=nosuch"}, says: "topic does not exist: nosuch"},
}

// ofExactlyOnce are those of a connector delivering exactly once.
var ofExactlyOnce = []mistake{
	{name: "payload column", set: []string{"event.payload=nosuch"}, exit: 2, says: "nosuch"},
	{name: "another checkpoint topic", set: []string{"checkpoint.topic=others"}, exit: 2, says: "there is no checkpoint"},
	{name: "another checkpoint key", set: []string{"checkpoint.key=other"}, exit: 2, says: "there is no checkpoint"},
	mistypedSlot,
	{name: "right to the transactional id", set: []string{"sink.kafka.sasl.username=single"}, exit: 2, says: "transactional"},
	newTopics,
}

// ofPolling are those of a polling connector.
var ofPolling = []mistake{
	{name: "table", set: []string{"source.tables=[public.outbx]"}, exit: 2, says: "did you mean public.outbox?"},
	{name: "payload column", set: []string{"event.payload=nosuch"}, exit: 2, says: "nosuch"},
	{name: "published column", set: []string{"source.poll.published=nosuch"}, exit: 2, says: "did you mean source.poll.published: published?"},
	{name: "published column, and rows are deleted", set: []string{"source.poll.published=publishd", "source.poll.after_publish=delete"}, exit: 2, says: "did you mean source.poll.published: published?"},
	{name: "published column of another type", set: []string{"source.poll.published=payload"}, exit: 2, says: "did you mean source.poll.published: published?"},
	{name: "column of the time of publishing", set: []string{"source.poll.published_at=publishd_at"}, exit: 2, says: "did you mean source.poll.published_at: published_at?"},
	{name: "both published columns", set: []string{"source.poll.published=nosuch", "source.poll.published_at=nosuch"}, exit: 2, says: "nosuch"},
	{name: "another published column", prepare: func(r *rollout) []string {
		r.exec(`ALTER TABLE outbox ADD archived boolean NOT NULL DEFAULT false`)
		return []string{"source.poll.published=archived"}
	}, exit: 2, says: "did you mean source.poll.published: published?"},
	{name: "order column", set: []string{"source.poll.order_by=[m]"}, exit: 2, says: "did you mean n?"},
	{name: "id column", set: []string{"event.id=nosuch"}, exit: 2, says: "nosuch"},
	{name: "key column", set: []string{"event.key=nosuch"}, exit: 2, says: "nosuch"},
	{name: "type column", set: []string{"event.type=nosuch"}, exit: 2, says: "nosuch"},
	{name: "timestamp column", set: []string{"event.timestamp=nosuch"}, exit: 2, says: "nosuch"},
	{name: "additional column", set: []string{"event.additional=[nosuch:header]"}, exit: 2, says: "nosuch"},
	{name: "route column", set: []string{"route.by=nosuch"}, exit: 2, says: "nosuch"},
	{name: "right to change rows", prepare: func(r *rollout) []string {
		u := r.as("reader_"+r.database(), "LOGIN PASSWORD 'pw'")
		r.exec(`GRANT SELECT ON outbox TO reader_` + r.database())
		return []string{"source.url=" + u}
	}, exit: 2, says: "GRANT"},
}

// notRolledOut are the inputs of errordocs not shown by a rollout, with the
// reason.
var notRolledOut = map[string]string{
	"unknown verb": "the program reads no configuration",
	"unknown flag": "the program reads no configuration",
	"`import` of another database's connector":                                        "it writes a configuration",
	"`import` of Avro":                                                                "it writes a configuration",
	"`import` of a connector without the outbox event router":                         "it writes a configuration",
	"`sink.stdout` without a standard output":                                         "an orchestrator gives each instance one",
	"`wal_level = replica`":                                                           "of the server: the old instance would not read it, either",
	"slot dropped since the last run":                                                 "the old instance reads the slot: PostgreSQL does not drop it",
	"slot dropped and recreated since the last run":                                   "the old instance reads the slot: PostgreSQL does not drop it",
	"publication dropped since the last run":                                          "it ends the old instance, too",
	"payload over `sink.kafka.max_record_bytes`":                                      "an event shows it",
	"payload over the broker's limit":                                                 "an event shows it",
	"transaction over `sink.kafka.max_buffered_bytes`, with `transaction_boundaries`": "an event shows it",
	"NULL or empty key":                                                               "an event shows it",
	"row from a time when a column had another name":                                  "an event shows it",
	"illegal topic name":                                                              "an event shows it",
}

// Each input of errordocs is rolled out, or there is a reason against a rollout.
func TestE2EEachErrorIsRolledOut(t *testing.T) {
	const answers = "../internal/lab/errordocs/testdata/answers.md"
	rolledOut := map[string]bool{}
	for _, m := range slices.Concat(ofTheStream, ofExactlyOnce, ofPolling, ofAny) {
		rolledOut[m.page] = true
	}
	delete(rolledOut, "")
	row := regexp.MustCompile(`(?m)^\| (.*?)(?: \(PostgreSQL [0-9, to]+\))? \| (?:\d|goes on) \| `)
	page := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(must.Get(os.ReadFile(answers))(t)), -1) {
		page[m[1]] = true
	}
	for input := range page {
		if _, excused := notRolledOut[input]; rolledOut[input] == excused {
			t.Errorf("%s: rolled out is %t, and so is having a reason not to be", input, excused)
		}
	}
	for _, input := range slices.AppendSeq(slices.Collect(maps.Keys(rolledOut)), maps.Keys(notRolledOut)) {
		if !page[input] {
			t.Errorf("%s has no input %q", answers, input)
		}
	}
}
