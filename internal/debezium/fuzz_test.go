package debezium

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// FuzzRead: no input makes the readers or the translation panic, the result is YAML of
// one document whose comments stay comments, and a password is not in the result.
func FuzzRead(f *testing.F) {
	for _, path := range must.Get(filepath.Glob("testdata/connectors/*/*"))(f) {
		switch filepath.Base(path) {
		case "report.txt", "cdc-outbox.yaml":
		default:
			f.Add(must.Get(os.ReadFile(path))(f))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = ReadWorker("worker", text)
		c, err := Read("input", text)
		if err != nil {
			return
		}
		c.Worker, _ = ReadWorker("worker", text)
		const secret = "S3cr3t-of-the-fuzzer"
		for i, o := range c.Options {
			if o.Name == "database.password" || strings.HasSuffix(o.Name, "password") {
				c.Options[i].Value = secret
			}
		}
		r, err := Translate(c, Choices{})
		if err != nil {
			return
		}
		written := written(t, r)
		var report strings.Builder
		must.OK(t, r.WriteText(&report))
		if strings.Contains(string(written)+report.String(), secret) {
			t.Errorf("the secret is in\n%s\n%s", written, report.String())
		}
		var keys map[string]any
		if err := yaml.Unmarshal(written, &keys); err != nil {
			t.Fatalf("%v in\n%s", err, written)
		}
		for key := range keys {
			if !slices.Contains(keyOrder, key) {
				t.Errorf("section %q in\n%s", key, written)
			}
		}
		_, _ = config.Load(config.Options{File: "f", Text: written})
	})
}

func FuzzJAAS(f *testing.F) {
	f.Add(`a.M required username="u" password='p\'q' x=y;`)
	f.Fuzz(func(_ *testing.T, text string) { _, _ = parseJAAS(text) })
}
