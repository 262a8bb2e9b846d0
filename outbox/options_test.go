package outbox_test

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func TestNewNamesEachWrongOption(t *testing.T) {
	long := strings.Repeat("x", 64)
	headers := func(context.Context) map[string]string { return nil }
	for name, tt := range map[string]struct {
		opts outbox.Options
		says []string
	}{
		"long names":             {outbox.Options{Table: outbox.Table{Schema: long, Name: long}}, []string{"Table.Schema", "Table.Name", "63 bytes"}},
		"NUL in a name":          {outbox.Options{Table: outbox.Table{Columns: outbox.Columns{ID: "a\x00"}}}, []string{"Table.Columns"}},
		"one column for two":     {outbox.Options{Table: outbox.Table{Columns: outbox.Columns{Type: "payload"}}}, []string{`"payload" is named twice`}},
		"prefix":                 {outbox.Options{Prefix: "\xff"}, []string{"Prefix"}},
		"payload type":           {outbox.Options{Payload: 9}, []string{"PayloadType(9)", "JSONB"}},
		"limit below":            {outbox.Options{MaxBytes: -1}, []string{"MaxBytes: -1"}},
		"limit above":            {outbox.Options{MaxBytes: 1 << 30}, []string{"MaxBytes: 1073741824"}},
		"headers without column": {outbox.Options{Table: outbox.Table{NoHeaders: true}, ContextHeaders: headers}, []string{"ContextHeaders", "NoHeaders"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := outbox.New(tt.opts)
			if err == nil {
				t.Fatal("no error")
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %v, want %q in it", err, s)
				}
			}
		})
	}
}

// TestDependsOnNoDriver keeps the promise that the library brings no driver, no
// Kafka client and no tracing into a service.
func TestDependsOnNoDriver(t *testing.T) {
	const module = "github.com/cdc-outbox/cdc-outbox/"
	for pkg, allowed := range map[string]string{
		"outbox":         `^(github\.com/cdc-outbox/cdc-outbox/(outbox|internal/envelope)|github\.com/google/uuid)$`,
		"outbox/tracing": `^(github\.com/cdc-outbox/cdc-outbox/outbox/tracing|github\.com/cespare/xxhash/v2|go\.opentelemetry\.io/otel/.*)$`,
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, dep := range strings.Fields(string(out)) {
			if !regexp.MustCompile(allowed).MatchString(dep) || strings.Contains(dep, "/otel/sdk") {
				t.Errorf("%s depends on %s", pkg, dep)
			}
		}
	}
}
