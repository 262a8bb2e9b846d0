package debezium

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

var update = flag.Bool("update", false, "rewrite the golden files and the table in docs")

// translated is a connector of testdata, read and translated.
func translated(t testing.TB, folder string) *Result {
	t.Helper()
	var c *Connector
	for _, path := range must.Get(filepath.Glob(filepath.Join(folder, "*")))(t) {
		text := must.Get(os.ReadFile(path))(t)
		if base := filepath.Base(path); strings.HasPrefix(base, "connector.") || base == "application.properties" {
			c = must.Get(Read(base, text))(t)
		}
	}
	if text, err := os.ReadFile(filepath.Join(folder, "worker.properties")); err == nil {
		c.Worker = must.Get(ReadWorker("worker.properties", text))(t)
	}
	return must.Get(Translate(c, Choices{}))(t)
}

// Each verdict on each option of configurations as people have them, and the
// configuration made of it.
func TestConnectors(t *testing.T) {
	folders := must.Get(filepath.Glob("testdata/connectors/*"))(t)
	if len(folders) < 20 {
		t.Errorf("%d connectors", len(folders))
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			r := translated(t, folder)
			var report bytes.Buffer
			must.OK(t, r.WriteText(&report))
			for name, got := range map[string][]byte{"report.txt": report.Bytes(), "cdc-outbox.yaml": written(t, r)} {
				path := filepath.Join(folder, name)
				if *update {
					must.OK(t, os.WriteFile(path, got, 0o644))
				}
				if want, _ := os.ReadFile(path); !bytes.Equal(want, got) {
					t.Errorf("%s is now\n%s", path, got)
				}
			}
			loads(t, r)
		})
	}
}

func written(t testing.TB, r *Result) []byte {
	t.Helper()
	return must.Get(r.YAML())(t)
}

// loads fails unless the configuration is refused for open options alone.
func loads(t *testing.T, r *Result) {
	t.Helper()
	environ := r.Environ()
	for _, s := range r.Secrets {
		value := "5432"
		if strings.HasSuffix(s.Variable, "_FILE") {
			value = os.DevNull
		}
		environ = append([]string{s.Variable + "=" + value}, environ...)
	}
	if strings.Contains(string(written(t, r)), "ca_file: /") {
		environ = append(environ, "CDC_OUTBOX_SINK_KAFKA_TLS_CA_FILE="+os.DevNull)
	}
	environ = append(environ, "RELAY_DB_USER=u", "RELAY_DB_PASSWORD=p", "DB_HOST=h", "DB_PASSWORD=p")
	_, err := config.Load(config.Options{File: "cdc-outbox.yaml", Text: written(t, r), Environ: environ})
	if err != nil && len(r.Open()) == 0 {
		t.Errorf("refused without an open option: %v", err)
	}
}
