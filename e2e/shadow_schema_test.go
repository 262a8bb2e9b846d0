package e2e

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// startApicurio starts a schema registry of another vendor, and returns its address. Where Java or
// Maven are missing, the test is skipped.
func startApicurio(t testing.TB) (addr string) {
	t.Helper()
	script := must.Get(child.Script("registry.sh"))(t)
	if out, err := exec.Command(script, "fetch").CombinedOutput(); err != nil {
		t.Skipf("no schema registry to be had: %v: %s", err, out)
	}
	addr = must.Get(freeport.TakeAddress())(t)
	_, port, err := net.SplitHostPort(addr)
	must.OK(t, err)
	p := must.Get(child.Start(exec.Command(script, "run", port)))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = p.Stop(ctx, syscall.SIGKILL)
	})
	await.Until(t, "the schema registry", func() bool { return child.AnswersHTTP(t.Context(), addr) == nil })
	return addr
}

// Debezium writes Avro, and registers the schemas of its payloads; ours looks them up. The import
// is of Confluent's converter, which Debezium would have beside Confluent's registry, and the
// records are of Apicurio's, in the same wire format.
func TestE2EShadowBySchema(t *testing.T) {
	t.Parallel()
	addr := startApicurio(t)
	confluent, own := "http://"+addr+"/apis/ccompat/v7", "http://"+addr+"/apis/registry/v2"
	const converter, subject = "value.converter", "payload"
	m := prepareMoving(t, map[string]string{
		"transforms.outbox.table.expand.json.payload": "true",
		converter:                          "io.confluent.connect.avro.AvroConverter",
		converter + ".schema.registry.url": confluent,
	})
	maps.DeleteFunc(m.connector, func(name, _ string) bool { return strings.HasPrefix(name, converter) })
	m.connector[converter] = "io.apicurio.registry.utils.converter.AvroConverter"
	for option, value := range map[string]string{
		"url": own, "as-confluent": "true", "headers.enabled": "false", "auto-register": "true", "use-id": "contentId", "artifact.group-id": "default",
		"artifact.artifact-id": subject, // the converter registers a schema once, whatever the topic
	} {
		m.connector[converter+".apicurio.registry."+option] = value
	}
	m.write("connector.properties", m.connector)
	m.write("worker.properties", map[string]string{ // without service_load, which does not find the converters
		"bootstrap.servers": m.broker.Brokers[0], "listeners": m.rest, "offset.storage.file.filename": filepath.Join(m.dir, "offsets"),
		"offset.flush.interval.ms": "3000", "key.converter": "org.apache.kafka.connect.storage.StringConverter",
		converter: "org.apache.kafka.connect.storage.StringConverter",
	})
	plugins := strings.Fields(string(must.Get(exec.Command(must.Get(child.Script("debezium.sh"))(t), "converters").Output())(t)))
	m.plugins = plugins[len(plugins)-1]
	m.startDebezium()
	m.awaitDebezium()

	w := m.startWriters(3, 5*time.Millisecond, seed(t))
	args := []string{"shadow", "-c", m.config, "--against", m.path("connector.properties"), "--until-idle", "--json",
		"--set", "encoding.registry.refresh=1s", "--set", "encoding.value.subject=record", "--set", "encoding.value.record=" + subject}
	shadow, out := m.start(args...)
	shadow.awaitLog("events committed after")
	await.Until(t, "events", func() bool { shadow.running(); return w.count() > 1000 })
	w.stop()
	if code := shadow.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	a := readShadow(t, out)
	t.Logf("%+v", a)
	if a.Different+a.Renumbered+a.Missing+a.Additional+a.Pending+a.Bad+a.Unjudged != 0 || a.Equal != a.Ours || a.Ours < 300 {
		t.Errorf("%+v\n%v", a, a.Examples)
	}

	// The same schema under another number, as of a subject filled by another service.
	client := must.Get(sr.NewClient(sr.URLs(confluent), sr.HTTPClient(&http.Client{Timeout: patience})))(t)
	latest := must.Get(client.SchemaByVersion(t.Context(), subject, -1))(t)
	var schema map[string]any
	must.OK(t, json.Unmarshal([]byte(latest.Schema.Schema), &schema))
	schema["doc"] = "the same again"
	must.Get(client.CreateSchema(t.Context(), subject, sr.Schema{Schema: string(must.Get(json.Marshal(schema))(t))}))(t)
	w = m.startWriters(3, 5*time.Millisecond, seed(t))
	shadow, out = m.start(args...)
	shadow.awaitLog("events committed after")
	await.Until(t, "events", func() bool { shadow.running(); return w.count() > 500 })
	w.stop()
	if code := shadow.wait(); code != 3 {
		t.Errorf("exit code %d", code)
	}
	a = readShadow(t, out)
	t.Logf("%+v", a)
	if a.Different+a.Missing+a.Additional+a.Pending+a.Bad+a.Unjudged != 0 || a.Renumbered != a.Ours || a.Ours < 50 || a.Parts[0].Part != "schema's number of the value" {
		t.Errorf("%+v\n%v", a, a.Examples)
	}
}
