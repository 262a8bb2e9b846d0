package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A remedy's command reads the file that the command which failed has read.
func TestRemediesNameTheConfigurationFile(t *testing.T) {
	dir := t.TempDir()
	for name, quoted := range map[string]string{"outbox.yaml": "", "it's mine.yaml": `'\''`} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, name)
			content := "source: {url: 'postgres://nobody@127.0.0.1:1/app'}\nsink: {stdout: {}}\ncheckpoint: {store: none}\n"
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			p := &program{stdout: &out, stderr: &errs}
			if code := p.run(t.Context(), []string{"setup", "-c", file, "--accept-gap", "--snapshot"}); code != 2 {
				t.Fatalf("exit code %d: %s", code, errs.String())
			}
			want := "cdc-outbox setup -c " + file + " --yes"
			if quoted != "" {
				want = "cdc-outbox setup -c '" + strings.ReplaceAll(file, "'", quoted) + "' --yes"
			}
			if got := p.withFile("try `cdc-outbox setup --yes`, or cdc-outbox check -c x; cdc-outbox-demo"); got != "try `"+want+"`, or cdc-outbox check -c x; cdc-outbox-demo" {
				t.Errorf("got %s", got)
			}
			encoded := p.withFileInJSON(`{"remedy": "cdc-outbox setup --yes"}`)
			var decoded map[string]string
			if err := json.Unmarshal([]byte(encoded), &decoded); err != nil || decoded["remedy"] != want {
				t.Errorf("%s: %v", encoded, err)
			}
		})
	}
}

// What could not be meant is refused.
func TestSetupFlagsThatMeanNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		args  []string
		words string
	}{
		"a role without a name": {[]string{"--role", ""}, "--role has no name"},
		"SQL as JSON":           {[]string{"--print", "--json"}, "prints SQL"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			p := &program{stdout: &out, stderr: &errs, environ: []string{
				"CDC_OUTBOX_SOURCE_URL=postgres://nobody@127.0.0.1:1/app", "CDC_OUTBOX_CHECKPOINT_STORE=none",
			}}
			args := append([]string{"setup", "--set", "sink.stdout=true"}, tt.args...)
			if code := p.run(t.Context(), args); code != 2 || !strings.Contains(errs.String(), tt.words) || out.Len() > 0 {
				t.Errorf("exit code %d, %q, %q", code, errs.String(), out.String())
			}
		})
	}
}
