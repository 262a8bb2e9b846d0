package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestLoad (failure mode 45) loads testdata/*/*.yaml and compares the outcome
// with the .golden file beside each: the problems as an operator sees them, or
// the keys not at their defaults. Lines "# env NAME=value" and "# set
// key=value" in a file are the environment and the flags.
func TestLoad(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			cfg, err := Load(optionsIn(t, file))
			var got string
			if err != nil {
				got = err.Error() + "\n"
			} else {
				got = dump(t, cfg)
			}
			if wantErr := strings.Contains(file, "problems"); (err != nil) != wantErr {
				t.Fatalf("Load: error %v, want one: %v", err, wantErr)
			}
			compare(t, strings.TrimSuffix(file, ".yaml")+".golden", got)
			if strings.Contains(got, "hunter2") || strings.Contains(got, "s3cret") {
				t.Errorf("shows a secret:\n%s", got)
			}
		})
	}
}

// Logins with files of the registry and of the claim store are read again.
func TestOtherLoginsWithFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	must.OK(t, os.WriteFile(file, []byte("s"), 0o600))
	text := "source: {url: 'postgres://db/app'}\nencoding: {value: {format: avro}, registry: {urls: [http://r], username: u, password: '${file:${FILE}}'}}\n" +
		"claim_check: {store: s3, s3: {bucket: claims, access_key: a, secret_key: '${file:${FILE}}'}}\n"
	load := func() *Config {
		return must.Get(Load(Options{File: "f.yaml", Text: []byte(text), Environ: []string{"FILE=" + file}}))(t)
	}
	cfg := load()
	must.OK(t, os.WriteFile(file, []byte("rotated"), 0o600))
	if a, b := cfg.withoutRotated(), load().withoutRotated(); !reflect.DeepEqual(a.Encoding, b.Encoding) || !reflect.DeepEqual(a.ClaimCheck, b.ClaimCheck) {
		t.Errorf("a rotation is another specification: %+v, %+v", a.ClaimCheck.S3, b.ClaimCheck.S3)
	}
	if registry, claims := cfg.Encoding.Registry.Written, cfg.ClaimCheck.Written; len(registry) != 1 || registry["password"] == nil || len(claims) != 1 || claims["secret_key"] == nil {
		t.Errorf("registry %v, claims %v", registry, claims)
	}
}

// Values under sink.kafka.sasl with files are read again, whichever section they come from;
// values of the environment stay.
func TestLoginsWithFiles(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "a"), []byte("first\n"), 0o600))
	text := "source: {url: 'postgres://db/app'}\nsink: {kafka: {sasl: {mechanism: PLAIN, username: 'u-${file:${DIR}/a}-${NAME}', password: '${file:${DIR}/a}'}}}\n"
	load := func(more string, set ...string) *Config {
		return must.Get(Load(Options{File: "f.yaml", Text: []byte(text + more), Environ: []string{"DIR=" + dir, "NAME=n"}, Set: set}))(t)
	}
	cfg := load("")
	must.OK(t, os.WriteFile(filepath.Join(dir, "a"), []byte("second\r\n"), 0o600))
	kafka := cfg.Sink.Kafka.SASL
	if kafka.Username != "u-first-n" || len(kafka.Written) != 2 || must.Get(kafka.Written["username"].Read())(t) != "u-second-n" {
		t.Errorf("%+v", kafka)
	}
	if got := fmt.Sprintf("%+v", kafka); strings.Contains(got, "Password:first") {
		t.Errorf("shows the password: %s", got)
	}
	if written := load("", "sink.kafka.sasl.password=p").Sink.Kafka.SASL.Written; len(written) != 1 || written["username"] == nil {
		t.Errorf("an override is read from the file: %v", written)
	}
	several := load("pipelines: {a: {}, b: {sink: {kafka: {sasl: {password: own}}}}}\n").Pipelines
	if a, b := several[0].Config.Sink.Kafka.SASL.Written, several[1].Config.Sink.Kafka.SASL.Written; len(a) != 2 || len(b) != 1 {
		t.Errorf("a pipeline has %v, the other %v", a, b)
	}
}

func TestLoadCompilesRoutingOnlyOfAGoodConfiguration(t *testing.T) {
	bad := []string{"source.url=postgres:///app", "route.regex=("}
	_, err := Load(Options{Set: bad})
	if err == nil || !strings.Contains(err.Error(), "route.regex") || !strings.Contains(err.Error(), "remedy: ") {
		t.Errorf("Load = %v, want the regex's error with its remedy", err)
	}
	if _, err := Load(Options{Set: bad[1:]}); err == nil || strings.Contains(err.Error(), "route.regex") {
		t.Errorf("Load = %v, want the missing URL alone", err)
	}
}

func TestCompatAllowsTopicsWithUnderscores(t *testing.T) {
	set := []string{"source.url=postgres://db/app", "route.topic=__orders"}
	if _, err := Load(Options{Set: set}); err == nil {
		t.Error("allowed without event.compat")
	}
	if _, err := Load(Options{Set: append(set, "event.compat=debezium")}); err != nil {
		t.Error(err)
	}
}

// A password is used as it is written in source.password, and no part of a
// password that is not encoded in a URL is shown.
func TestPasswords(t *testing.T) {
	const password = `p@ss/w#1 '+%\`
	for _, url := range []string{"postgres://cdc@h:5432/app", "postgres://cdc@h:5432/app?sslmode=disable", "postgres:///app?user=cdc", "user=cdc dbname=app"} {
		cfg := must.Get(Load(Options{Set: []string{"source.url=" + url, "source.password=" + password}}))(t)
		parsed := must.Get(pgconn.ParseConfig(cfg.Source.URL.Reveal()))(t)
		if parsed.Password != password || parsed.User != "cdc" || parsed.Database != "app" {
			t.Errorf("%s: user %s with password %s in %s", url, parsed.User, parsed.Password, parsed.Database)
		}
	}
	for _, url := range []string{"postgres://cdc:inurl@h/app", "postgres://cdc@h/app?password=inurl", "user=cdc password=inurl dbname=app"} {
		cfg := must.Get(Load(Options{Set: []string{"source.url=" + url, "source.password=" + password}}))(t)
		if parsed := must.Get(pgconn.ParseConfig(cfg.Source.URL.Reveal()))(t); parsed.Password != "inurl" {
			t.Errorf("%s: password %s", url, parsed.Password)
		}
	}
	administrators := must.Get(Load(Options{Environ: []string{"CDC_OUTBOX_SOURCE_PASSWORD=theirs"}, Set: []string{"source.url=postgres://admin@h/app"}}))(t)
	if strings.Contains(administrators.Source.URL.Reveal(), "theirs") {
		t.Error("a URL of --set has the password of the environment")
	}
	for _, bad := range []string{"p@xyzzy", "p/xyzzy", "p#xyzzy", "xyzzy@/#1", "1/xyzzy"} {
		_, err := Load(Options{Set: []string{"source.url=postgres://cdc:" + bad + "@h:5432/app"}})
		if err == nil || !strings.Contains(err.Error(), "source.password") || strings.Contains(err.Error(), "xyzzy") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, good := range []string{"postgres://c%40d:p%40%2F%23@h1:5432,h2:5433/app", "postgres://cdc@%2Fvar%2Frun/app", "postgres:///app?user=a@b&host=/tmp", "host=h user=a@b dbname=x#y"} {
		must.Get(Load(Options{Set: []string{"source.url=" + good}}))(t)
	}
}

func TestLoadWithoutAFile(t *testing.T) {
	_, err := Load(Options{File: "testdata/absent.yaml", Set: []string{"source.url=postgres:///app"}})
	if err == nil || !strings.Contains(err.Error(), "testdata/absent.yaml: cannot be read: no such file") {
		t.Errorf("Load = %v", err)
	}
}

func TestDefaultIsValidOnceThereIsAURL(t *testing.T) {
	cfg := Default()
	cfg.Source.URL = "postgres:///app"
	must.OK(t, cfg.Validate())
	cfg.Sink.Kafka = nil
	if err := cfg.Validate(); err == nil {
		t.Error("a configuration without a sink is valid")
	}
}

// FuzzLoad feeds arbitrary files: no panic, and never the secrets the fixed
// layers hold.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	path := filepath.Join(f.TempDir(), "fuzz.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "file:") {
			t.Skip("would read files of this machine")
		}
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Load(Options{
			File:    path,
			Environ: []string{"SECRET=xyzzy-1", "CDC_OUTBOX_SINK_KAFKA_SASL_PASSWORD=xyzzy-2"},
			Set:     []string{"source.url=postgres://u:xyzzy-3@localhost/app"},
		})
		if err != nil && strings.Contains(err.Error(), "xyzzy-") && !strings.Contains(text, "xyzzy-") {
			t.Errorf("shows a secret: %v", err)
		}
	})
}

// optionsIn reads the environment and the flags the file's comments name.
func optionsIn(t *testing.T, file string) Options {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	opts := Options{File: file}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if assignment, ok := strings.CutPrefix(line, "# env "); ok {
			opts.Environ = append(opts.Environ, assignment)
		}
		if assignment, ok := strings.CutPrefix(line, "# set "); ok {
			opts.Set = append(opts.Set, assignment)
		}
	}
	return opts
}

// dump lists the keys whose values are not the defaults.
func dump(t *testing.T, cfg *Config) string {
	t.Helper()
	defaults, shown := Default(), *cfg
	if shown.Sink.Kafka == nil {
		shown.Sink.Kafka = sink.DefaultOptions()
	}
	before, after := fieldsOf(&defaults), fieldsOf(&shown)
	var b strings.Builder
	for _, key := range before.keys {
		got := after.byKey[key].value.Interface()
		if !reflect.DeepEqual(got, before.byKey[key].value.Interface()) {
			fmt.Fprintf(&b, "%s = %v\n", key, got)
		}
	}
	fmt.Fprintf(&b, "kafka sink: %t\n", cfg.Sink.Kafka != nil)
	for _, p := range cfg.Pipelines {
		fmt.Fprintf(&b, "\npipeline %s:\n%s", p.Name, dump(t, p.Config))
	}
	return b.String()
}

func compare(t *testing.T, golden, got string) {
	t.Helper()
	if *update {
		must.OK(t, os.WriteFile(golden, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatalf("%v (run go test ./internal/config -update)", err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// A repair of a loss is offered only where the configuration allows it.
func TestRepairable(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Config)
		want   bool
	}{
		"kafka":      {func(*Config) {}, true},
		"messages":   {func(c *Config) { c.Source.Mode = ModeMessage }, false},
		"stdout":     {func(c *Config) { c.Sink = Sink{Stdout: &Stdout{}} }, false},
		"quarantine": {func(c *Config) { c.Errors.OnBadEvent = transform.BadEventQuarantine }, false},
	} {
		c := Default()
		c.Sink.Kafka = sink.DefaultOptions()
		tt.change(&c)
		if got := c.Repairable(); got != tt.want || c.Errors.OnLoss != LossStop {
			t.Errorf("%s: %v, errors.on_loss %s", name, got, c.Errors.OnLoss)
		}
	}
}
