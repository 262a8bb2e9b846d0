package docblocks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/docblocks"
)

// recorder takes what a check finds.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func TestCheck(t *testing.T) {
	document := filepath.Join(t.TempDir(), "document.md")
	text := "Text.\n\n```go\nif x {\n\ty()\n}\n```\n\n```sh\nmake\n```\n"
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, source string
		least        int
		want         string // of the only error; none if empty
	}{
		{"deeper in the source", "func f() {\n\tif x {\n\t\ty()\n\t}\n}\n", 1, ""},
		{"another call", "if x {\n\tz()\n}\n", 1, "this is in no source"},
		{"too few", "if x {\n\ty()\n}\n", 2, "1 blocks"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &recorder{TB: t}
			docblocks.Check(r, document, tt.least, docblocks.Sources{"go": tt.source})
			if got := strings.Join(r.errors, "; "); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) || len(r.errors) > 1 {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	dir := t.TempDir()
	source := `package p
		import ("time"; "example.com/unknown")
		const (defaultWait = 2 * time.Second; defaultSize = 1 << 10; defaultName = "n")
		type Options struct { Wait time.Duration; Size int; Name string; Other unknown.Thing }`
	document := filepath.Join(dir, "document.md")
	for name, text := range map[string]string{"p.go": source, "document.md": "\n| `p.Options` | `Wait` 2s, `Size` 10240 |\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := &recorder{TB: t}
	docblocks.Defaults(r, document, map[string]string{"p.Options": dir})
	got := strings.Join(r.errors, "; ")
	if len(r.errors) != 2 || !strings.Contains(got, "does not say `Size` 1024") || !strings.Contains(got, "does not say `Name` n") {
		t.Errorf("found %q", got)
	}
}

func TestSection(t *testing.T) {
	document := filepath.Join(t.TempDir(), "document.md")
	text := "# A\n\n## B\n\n```sh\none\n# comment\n```\n\n### C\n\n```sh\ntwo\n```\n```yaml\nx: y\n```\n\n## D\n\n```sh\nthree\n```\n"
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := docblocks.Section(t, document, "## B"); got["sh"] != "one\n# comment\ntwo\n" || got["yaml"] != "x: y\n" || len(got) != 2 {
		t.Errorf("got %q", got)
	}
}
