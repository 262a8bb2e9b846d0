package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// The verbs read letters as the pages describe them, with nothing but Kafka.
func TestDeadLettersOnTheCommandLine(t *testing.T) {
	broker := kafkatest.Start(t)
	broker.CreateTopic(t, "dead", 1, nil)
	client := broker.Client(t)
	defer client.Close()
	text := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	for i, cut := range []string{"", "value=5242880"} {
		letter := &kgo.Record{Topic: "dead", Key: []byte("42"), Value: []byte(`{"n": 1}`), Headers: []kgo.RecordHeader{
			text("id", fmt.Sprint("e", i)), text("cdc-dlq-reason", "missing_topic"), text("cdc-dlq-error", "no such topic"), text("cdc-dlq-table", "public.outbox"),
			text("cdc-dlq-id", fmt.Sprint("e", i)), text("cdc-dlq-lsn", "0/10"), text("cdc-dlq-seq", "0"), text("cdc-dlq-topic", "orders"), text("cdc-dlq-timestamp", "2026-08-01T12:00:00Z"),
		}}
		if cut != "" {
			letter.Headers = append(letter.Headers, text("cdc-dlq-cut", cut))
		}
		must.OK(t, client.ProduceSync(t.Context(), letter).FirstErr())
	}
	config := writeFile(t, fmt.Sprintf("source: {url: 'postgres:///app'}\nsink: {kafka: {brokers: ['%s']}}\nerrors: {on_bad_event: dead_letter, dead_letter_topic: dead}\n", broker.Brokers[0]))
	do := func(args ...string) string {
		t.Helper()
		got := execute(t.Context(), nil, append(append([]string{"dead-letters"}, args...), "-c", config)...)
		if got.code != 0 {
			t.Fatalf("%v: %+v", args, got)
		}
		return got.stdout
	}
	var list struct {
		Letters int
		Newest  []struct {
			Partition, Offset int
			ID, Topic, Reason string
			Cut               bool
		}
	}
	must.OK(t, json.Unmarshal([]byte(do("list", "--json", "--limit", "1")), &list))
	if list.Letters != 2 || len(list.Newest) != 1 || list.Newest[0].Offset != 1 || list.Newest[0].ID != "e1" || !list.Newest[0].Cut {
		t.Errorf("%+v", list)
	}
	must.Contain(t, do("show", "--partition", "0", "--offset", "1"), "cut       value=5242880", `{"n": 1}`)
	said := do("redrive", "--all")
	must.Contain(t, said, "2 letters chosen, 0 redriven before, 1 refused, 0 waiting, 0 uncertain, 1 to publish", `0/0`, `e0  key "42"  orders  missing_topic`,
		"it is cut (value=5242880)", "cdc-outbox replay -c "+config+" --name redrive --id 'e1' --publish", "repeat the command with --publish")
	if strings.Contains(said, "published 1") {
		t.Error(said)
	}
	if got := execute(t.Context(), nil, "dead-letters", "redrive", "--id", "e2", "-c", config); got.code != 2 || !strings.Contains(got.stderr, `the id "e2"`) {
		t.Errorf("%+v", got)
	}
}
