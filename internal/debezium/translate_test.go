package debezium

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Inputs that cannot be imported are refused with a cause and a remedy.
func TestRefusals(t *testing.T) {
	const router = `"transforms":"outbox","transforms.outbox.type":"io.debezium.transforms.outbox.EventRouter"`
	for _, c := range []struct{ name, input, cause, remedy string }{
		{"another database", `{"connector.class":"io.debezium.connector.mysql.MySqlConnector",` + router + `}`, "MySqlConnector, and cdc-outbox reads PostgreSQL only", "import a connector of class io.debezium.connector.postgresql"},
		{"a sink connector", `{"name":"x","config":{"connector.class":"io.confluent.connect.jdbc.JdbcSinkConnector"}}`, "PostgreSQL only", "import a connector"},
		{"Confluent Cloud", `{"connector.class":"PostgresCdcSourceV2",` + router + `}`, "options of its own", "under Debezium's names"},
		{"no connector", `{"bootstrap.servers":"k:9092"}`, "no connector.class", "name the file"},
		{"change events", `{"connector.class":"io.debezium.connector.postgresql.PostgresConnector"}`, "no transforms", "only outbox tables"},
		{"another transform", `{"connector.class":"io.debezium.connector.postgresql.PostgresConnector","transforms":"unwrap","transforms.unwrap.type":"io.debezium.transforms.ExtractNewRecordState"}`, "but io.debezium.transforms.ExtractNewRecordState", "stay with Debezium"},
		{"another sink", "debezium.sink.type=kinesis\ndebezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector", "publishes to kinesis", "debezium.sink.type=kafka"},
		{"no sink", "debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector", "names no sink", "debezium.sink.type=kafka"},
		{"a script", "curl -d '{}' http://connect", "no connector.class", "name the file"},
		{"half an object", `{"config": {"connector.class": "x"`, "is not JSON", "correct the syntax"},
		{"a nested option", `{"config": {"connector.class": {"a": 1}}}`, "option connector.class is an object", "as text"},
		{"empty", " \n", "is empty", "name the file"},
		{"large", strings.Repeat("a", largest+1), "more than", "name the file"},
		{"broken properties", "a=\\u12", "neither JSON nor YAML of Strimzi, nor Java properties", "name=value"},
		{"bytes", "a=\xff", "is not text in UTF-8", "UTF-8"},
		{"a KafkaConnect alone", "kind: KafkaConnect\nspec: {}", "has no KafkaConnector", "--worker"},
		{"two connectors", "kind: KafkaConnector\nspec: {class: x}\n---\nkind: KafkaConnector\nspec: {class: y}", "more than one KafkaConnector", "keep one"},
		{"tabs", "kind: KafkaConnector\nspec:\n\tclass: x", "is not YAML", "syntax"},
	} {
		t.Run(c.name, func(t *testing.T) {
			connector, err := Read("connector.json", []byte(c.input))
			if err == nil {
				_, err = Translate(connector, Choices{})
			}
			if err == nil || failure.ClassOf(err) != failure.Config {
				t.Fatalf("%v: no error of configuration", err)
			}
			must.Contain(t, err.Error(), c.cause)
			must.Contain(t, failure.RemedyOf(err), c.remedy)
		})
	}
}

// A router among several is chosen by its name.
func TestChoices(t *testing.T) {
	const text = `{"connector.class":"io.debezium.connector.postgresql.PostgresConnector","transforms":"a,b",
		"transforms.a.type":"io.debezium.transforms.outbox.EventRouter","transforms.a.route.by.field":"first",
		"transforms.b.type":"io.debezium.transforms.outbox.EventRouter","transforms.b.route.by.field":"second"}`
	c := must.Get(Read("c.json", []byte(text)))(t)
	r := must.Get(Translate(c, Choices{Router: "b", Brokers: []string{"k-1:9092", "k-2:9092"}}))(t)
	must.Contain(t, string(written(t, r)), "by: second", "brokers: ['k-1:9092', 'k-2:9092']")
	must.Contain(t, verdictOf(t, r, "transforms.a.type").Note, "--router a")
	if _, err := Translate(c, Choices{Router: "c"}); err == nil || !strings.Contains(failure.RemedyOf(err), "a, b") {
		t.Errorf("%v", err)
	}
}

func verdictOf(t testing.TB, r *Result, option string) Verdict {
	t.Helper()
	for _, v := range r.Verdicts {
		if v.Option == option {
			return v
		}
	}
	t.Fatalf("no verdict on %s", option)
	return Verdict{}
}

// Secrets of the input are not written, whatever the form of the answer.
func TestSecretsStayOutside(t *testing.T) {
	secrets := []string{
		"p@ss/w#rd", "parcels-secret", "reader-secret", "relay-secret", "cdc-secret", "signal-secret", "api-secret",
		"store-secret", "key-secret", "claims-secret", "quoted", "worker-secret",
	}
	for _, folder := range must.Get(filepath.Glob("testdata/connectors/*"))(t) {
		r := translated(t, folder)
		var report strings.Builder
		must.OK(t, r.WriteText(&report))
		all := string(written(t, r)) + report.String() + string(must.Get(json.Marshal(r))(t))
		for _, secret := range secrets {
			if strings.Contains(all, secret) {
				t.Errorf("%s: %q is written", folder, secret)
			}
		}
	}
}

// The secrets of the input are known for the check, in the form of the server.
func TestSecretsAreKnownForTheCheck(t *testing.T) {
	cfg := must.Get(config.Load(config.Options{
		File: "f", Text: written(t, translated(t, "testdata/connectors/routed-by-column")),
		Environ: translated(t, "testdata/connectors/routed-by-column").Environ(),
	}))(t)
	if want := "postgres://relay@pg.clinic.example.com:5433/patients?password=p%40ss%2Fw%23rd"; cfg.Source.URL.Reveal() != want {
		t.Errorf("%s, want %s", cfg.Source.URL.Reveal(), want)
	}
	r := translated(t, "testdata/connectors/of-the-worker")
	environ := strings.Join(r.Environ(), "\n")
	must.Contain(t, environ, `KAFKA_PASSWORD=trades "quoted" secret`, "CDC_PASSWORD=trades")
}

// References of Connect and of Quarkus have ours in their place.
func TestReferences(t *testing.T) {
	connect := &translation{result: &Result{}, worker: index([]Option{{Name: "config.providers.sec.class", Value: "io.strimzi.kafka.KubernetesSecretConfigProvider"}})}
	quarkus := &translation{result: &Result{}, server: true}
	for _, c := range []struct {
		in   *translation
		text string
		want string
	}{
		{connect, "plain", "plain"},
		{connect, "a$b$$c${d}", "a$$b$$$$c$${d}"},
		{connect, "${env:DB_PASSWORD}", "${DB_PASSWORD}"},
		{connect, "${strimzienv:DB_PASSWORD}", "${DB_PASSWORD}"},
		{connect, "x-${env:A}-${env:B}", "x-${A}-${B}"},
		{connect, "${dir:/opt/secrets:password}", "${file:/opt/secrets/password}"},
		{connect, "${directory:/opt/secrets/:password}", "${file:/opt/secrets/password}"},
		{connect, "${file:/opt/s.properties:password}", "${VARIABLE}"},
		{connect, "${secrets:ns/name:key}", "${VARIABLE}"},
		{connect, "${sec:ns/name:key}", "${VARIABLE}"},
		{connect, "${vault:path:key}", "${VARIABLE}"},
		{quarkus, "${DB_PASSWORD}", "${DB_PASSWORD}"},
		{quarkus, "${DB_PASSWORD:none}", "${DB_PASSWORD}"},
		{quarkus, "${db.password}", "${DB_PASSWORD}"},
		{quarkus, "$${literal}", "$${literal}"},
		{quarkus, "${vault::kafka/password}", "${VARIABLE}"},
	} {
		if got := c.in.resolve(Option{Name: "o", Written: "o", Value: c.text}, "VARIABLE"); got.text != c.want {
			t.Errorf("%s: %s, want %s", c.text, got.text, c.want)
		}
	}
}

func TestJAAS(t *testing.T) {
	for _, c := range []struct{ text, module, user, password string }{
		{`a.PlainLoginModule required username="u" password="p";`, "a.PlainLoginModule", "u", "p"},
		{"a.M  required\n username='u v'\n password=\"p\\\"q;r\\\\\"\n;", "a.M", "u v", `p"q;r\`},
		{`a.M REQUIRED username=u password=p;`, "a.M", "u", "p"},
		{`a.M required;`, "a.M", "", ""},
		{`a.M required username="u`, "", "", ""},
		{`a.M`, "", "", ""},
		{`a.M sometimes username="u";`, "", "", ""},
		{``, "", "", ""},
		{`a.M required username;`, "", "", ""},
	} {
		j, err := parseJAAS(c.text)
		switch {
		case c.module == "" && err == nil:
			t.Errorf("%s: no error", c.text)
		case c.module == "":
		case err != nil || j.module != c.module || j.options["username"] != c.user || j.options["password"] != c.password:
			t.Errorf("%s: %+v, %v", c.text, j, err)
		}
	}
}

// Each option of the input has exactly one verdict, and each verdict in order.
func TestEachOptionHasOneVerdict(t *testing.T) {
	for _, folder := range must.Get(filepath.Glob("testdata/connectors/*"))(t) {
		seen := map[string]bool{}
		for _, v := range translated(t, folder).Verdicts {
			place := v.Option
			if strings.HasPrefix(place, "worker: KafkaConnect") {
				continue // of a section with several effects
			}
			if seen[place] {
				t.Errorf("%s: two verdicts on %s", folder, place)
			}
			seen[place] = true
			if v.Kind == Differs && v.Note == "" || v.Kind == None && v.Note == "" {
				t.Errorf("%s: no reason for %+v", folder, v)
			}
		}
	}
}
