package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// readers are consumers by the SDKs of CloudEvents.
var readers = []language{
	{
		dir: "python", needs: []string{"python3"},
		install:  [][]string{{"python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--root-user-action=ignore", "--target", "packages", "-r", "requirements.txt"}},
		environ:  []string{"PYTHONPATH={dir}/packages"},
		consumer: []string{"python3", "read.py"},
	},
	{
		dir: "java", needs: []string{"java", "mvn"},
		install:  [][]string{{"mvn", "-B", "-q", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies", "-DoutputDirectory=jars"}},
		consumer: []string{"java", "-cp", "jars/*", "Read.java"},
	},
}

// cloudEvent is an event as a reader prints it.
type cloudEvent struct {
	Attributes map[string]string `json:"attributes"`
	Data       any               `json:"data"`
}

// TestE2ECloudEvents has the SDKs of others read events of all kinds of data in both modes.
func TestE2ECloudEvents(t *testing.T) {
	prepared := map[string]string{}
	for _, l := range readers {
		dir := t.TempDir()
		t.Run(l.dir, func(t *testing.T) { prepared[l.dir] = l.prepareIn(t, dir, "testdata/cloudevents") })
	}
	for _, mode := range []string{"binary", "structured"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			broker, db := kafkatest.Start(t), pgtest.Shared(t).NewDatabase(t)
			broker.CreateTopic(t, topicOf("order"), 1, nil)
			pgtest.Exec(t, db, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload bytea,
				source text, media text, schema text, at timestamptz, tenant text, n int, urgent boolean)`)
			config := filepath.Join(t.TempDir(), "cdc-outbox.yaml")
			must.OK(t, os.WriteFile(config, fmt.Appendf(nil, `
source: {url: "%s", slot: e2e_%d, publication: e2e_events}
event:
  cloudevents:
    mode: %s
    source: /orders
    attributes: [source, "media:datacontenttype", "schema:dataschema", "at:time", tenant, "n:count", urgent]
sink: {kafka: {brokers: ["%s"]}}
http: {listen: ""}
`, db, worlds.Add(1), mode, broker.Brokers[0]), 0o600))
			startConnector(t, config).awaitLog(`"streaming"`)
			pgtest.Exec(t, db, `INSERT INTO outbox VALUES
				('11111111-1111-4111-8111-111111111111', 'order', 'größe', 'Placed', '{"id": 1, "note": "naïve 😀"}', NULL, 'application/json', NULL, '2026-08-01 12:00:00.25Z', 'say "hi"', -3, true),
				('22222222-2222-4222-8222-222222222222', 'order', '42', 'shop.Paid', '\xff00c3', 'https://example.com/orders?a=b', NULL, 'https://example.com/order.bin', '1999-12-31 23:59:59Z', NULL, NULL, NULL),
				('33333333-3333-4333-8333-333333333333', 'order', '42', 'Noted', 'say "hi", ä', NULL, 'text/plain; charset=utf-8', NULL, '2026-08-01 12:00:00Z', NULL, 2147483647, false),
				('44444444-4444-4444-8444-444444444444', 'order', '42', 'Listed', '[1, "2", null]', NULL, 'application/order+json', NULL, '2026-08-01 12:00:00Z', NULL, NULL, NULL)`)
			want := []cloudEvent{
				{map[string]string{"id": "11111111-1111-4111-8111-111111111111", "type": "Placed", "source": "/orders", "subject": "größe", "partitionkey": "größe", "datacontenttype": "application/json",
					"time": "2026-08-01T12:00:00.250000Z", "tenant": `say "hi"`, "count": "-3", "urgent": "true"}, map[string]any{"id": 1.0, "note": "naïve 😀"}},
				{map[string]string{"id": "22222222-2222-4222-8222-222222222222", "type": "shop.Paid", "source": "https://example.com/orders?a=b", "subject": "42", "partitionkey": "42", "datacontenttype": "application/octet-stream",
					"dataschema": "https://example.com/order.bin", "time": "1999-12-31T23:59:59.000000Z"}, "/wDD"},
				{map[string]string{"id": "33333333-3333-4333-8333-333333333333", "type": "Noted", "source": "/orders", "subject": "42", "partitionkey": "42", "datacontenttype": "text/plain; charset=utf-8",
					"time": "2026-08-01T12:00:00.000000Z", "count": "2147483647", "urgent": "false"}, `say "hi", ä`},
				{map[string]string{"id": "44444444-4444-4444-8444-444444444444", "type": "Listed", "source": "/orders", "subject": "42", "partitionkey": "42", "datacontenttype": "application/order+json",
					"time": "2026-08-01T12:00:00.000000Z"}, []any{1.0, "2", nil}},
			}
			for _, l := range readers {
				if prepared[l.dir] == "" {
					continue // skipped
				}
				got := l.readEvents(t, prepared[l.dir], broker.Brokers[0], len(want))
				for i, w := range want {
					maps.Copy(w.Attributes, map[string]string{"specversion": "1.0"})
					if g, w := fmt.Sprint(got[i]), fmt.Sprint(w); g != w {
						t.Errorf("%s reads\n%s\nwant\n%s", l.dir, g, w)
					}
				}
			}
		})
	}
}

// readEvents runs the reader on the topic of orders.
func (l *language) readEvents(t *testing.T, dir, brokers string, n int) (events []cloudEvent) {
	t.Helper()
	var lines bytes.Buffer
	cmd := exec.CommandContext(t.Context(), l.consumer[0], append(l.consumer[1:len(l.consumer):len(l.consumer)], brokers, topicOf("order"), strconv.Itoa(n))...)
	cmd.Stdout = &lines
	l.run(t, dir, cmd)
	for decoder := json.NewDecoder(&lines); decoder.More(); {
		var e cloudEvent
		must.OK(t, decoder.Decode(&e))
		events = append(events, e)
	}
	if len(events) != n {
		t.Fatalf("%s: %d events, want %d", l.dir, len(events), n)
	}
	return events
}
