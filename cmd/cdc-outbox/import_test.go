package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// routed is a connector without anything to decide.
const routed = `{"name": "orders", "config": {
	"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
	"database.hostname": "localhost", "database.port": "1", "database.user": "relay", "database.password": "p@ss word", "database.dbname": "app",
	"topic.prefix": "app", "table.include.list": "public.outbox", "slot.name": "orders", "publication.name": "orders",
	"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter", "transforms.outbox.route.topic.replacement": "orders.${routedByValue}",
	"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
	"producer.override.bootstrap.servers": "localhost:1"}}`

func TestImportWritesTheConfiguration(t *testing.T) {
	input := filepath.Join(t.TempDir(), "connector.json")
	must.OK(t, os.WriteFile(input, []byte(routed), 0o600))

	got := execute(t.Context(), nil, "import", "debezium", input, "--no-check")
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	must.Contain(t, got.stdout, "compat: debezium", "url: postgres://relay@localhost:1/app", "password: ${CDC_PASSWORD}", "topic: orders.${routedByValue}")
	must.Contain(t, got.stderr, "same     slot.name = orders -> source.slot", "export   CDC_PASSWORD=…", "0 to decide")

	out := filepath.Join(t.TempDir(), "cdc-outbox.yaml")
	if got := execute(t.Context(), nil, "import", "debezium", "-o", out, "--no-check", input); got.code != 0 || got.stdout != "" {
		t.Fatalf("%+v", got)
	}
	written := string(must.Get(os.ReadFile(out))(t))
	if written != execute(t.Context(), nil, "import", "debezium", input, "--no-check").stdout {
		t.Errorf("the file has\n%s", written)
	}
	if got := execute(t.Context(), nil, "import", "debezium", input, "-o", out, "--no-check"); got.code != 2 || !strings.Contains(got.stderr, "exists, and import overwrites nothing") {
		t.Errorf("%+v", got)
	}
	if got := execute(t.Context(), []string{"CDC_PASSWORD=other"}, "run", "-c", out); got.code != 0 {
		t.Errorf("run refuses the result: %+v", got)
	}
}

// The check knows the password, which nothing shows.
func TestImportChecksTheResult(t *testing.T) {
	input := filepath.Join(t.TempDir(), "connector.json")
	must.OK(t, os.WriteFile(input, []byte(routed), 0o600))
	got := execute(t.Context(), nil, "import", "debezium", input, "--json")
	var answer struct {
		ToDecide      int    `json:"to_decide"`
		Configuration string `json:"configuration"`
		Options       []struct{ Option, Verdict, Key string }
		Check         struct {
			Checks []struct{ Name, Outcome string }
		}
	}
	must.OK(t, json.Unmarshal([]byte(got.stdout), &answer))
	if got.code != 2 || len(answer.Check.Checks) == 0 || len(answer.Options) < 15 || answer.Configuration == "" || answer.ToDecide != 0 {
		t.Errorf("%+v", got)
	}
	if strings.Contains(got.stdout+got.stderr, "p@ss word") || strings.Contains(got.stdout+got.stderr, "p%40ss") {
		t.Errorf("the password is in %+v", got)
	}
}

func TestImportOfWhatIsToBeDecided(t *testing.T) {
	folder := t.TempDir()
	input, worker := filepath.Join(folder, "connector.json"), filepath.Join(folder, "worker.env")
	text := strings.NewReplacer(
		`"value.converter": "org.apache.kafka.connect.storage.StringConverter",`, "",
		`"producer.override.bootstrap.servers": "localhost:1"`, `"tasks.max": "1"`).Replace(routed)
	must.OK(t, os.WriteFile(input, []byte(text), 0o600))
	must.OK(t, os.WriteFile(worker, []byte("CONNECT_BOOTSTRAP_SERVERS=k-1:9092\nCONNECT_VALUE_CONVERTER=org.apache.kafka.connect.json.JsonConverter\nCONNECT_VALUE_CONVERTER_SCHEMAS_ENABLE=false\n"), 0o600))

	got := execute(t.Context(), nil, "import", "debezium", input, "--no-check")
	if got.code != 2 {
		t.Errorf("code %d", got.code)
	}
	must.Contain(t, got.stderr, "to decide before a start: value.converter, producer.override.bootstrap.servers", `event.payload_format "undecided": must be one of`)
	must.Contain(t, got.stdout, "# To decide before a start:\n# - value.converter")

	got = execute(t.Context(), nil, "import", "debezium", input, "--no-check", "--worker", worker)
	if got.code != 0 {
		t.Errorf("%+v", got)
	}
	must.Contain(t, got.stdout, "brokers: ['k-1:9092']", "payload_format: json")
}

func TestImportFromAWorker(t *testing.T) {
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "admin" || password != "connect-secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/connector-plugins" {
			_, _ = w.Write([]byte(`[{"class":"io.debezium.connector.postgresql.PostgresConnector","version":"2.7.4.Final"}]`))
			return
		}
		_, _ = w.Write([]byte(routed))
	}))
	defer worker.Close()
	address := worker.URL + "/connectors/orders"
	got := execute(t.Context(), []string{"SECRET=connect-secret"}, "import", "debezium", address, "--user", "admin", "--password-env", "SECRET", "--no-check")
	if got.code != 0 || !strings.Contains(got.stdout, "extended_headers_enabled: false") {
		t.Errorf("%+v", got)
	}
	must.Contain(t, got.stderr, "version 2.7.4.Final writes no context headers")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{address}, "401"},
		{[]string{address, "--password-env", "NONE"}, "export NONE="},
		{[]string{"/no/such/file"}, "cannot be read"},
		{nil, "takes one argument, FILE|URL"},
		{[]string{"a", "b"}, "takes one argument, FILE|URL"},
	} {
		if got := execute(t.Context(), nil, append([]string{"import", "debezium"}, c.args...)...); got.code != 2 || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
}
