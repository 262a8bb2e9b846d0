package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Systemd reads the unit unchanged but for the program, missing on this machine.
func TestSystemdUnitIsValid(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: nothing reads the unit")
	}
	unit := strings.ReplaceAll(read(t, "systemd/cdc-outbox.service"), "/usr/local/bin/cdc-outbox ", "/bin/true ")
	file := filepath.Join(t.TempDir(), "cdc-outbox.service")
	must.OK(t, os.WriteFile(file, []byte(unit), 0o600))
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=no", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// Failure mode 142. cdc-outbox-verb gives a verb the settings of the unit and its
// drop-ins. systemctl and systemd-run are stand-ins.
func TestSystemdVerb(t *testing.T) {
	folder := t.TempDir()
	unit := must.Get(filepath.Abs("systemd/cdc-outbox.service"))(t)
	for name, script := range map[string]string{
		"systemctl": "[ \"$*\" = 'cat cdc-outbox.service' ] && cat " + unit + ` - <<'X'

# /etc/systemd/system/cdc-outbox.service.d/kafka.conf
[Service]
LoadCredential=kafka-password:/etc/cdc-outbox/kafka \
  unused:/dev/null
Environment="A=b c" D=e
X
`,
		"systemd-run": `for word; do printf '%s\n' "$word"; done; exit 3`,
	} {
		must.OK(t, os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script), 0o700))
	}
	cmd := exec.CommandContext(t.Context(), "sh", "systemd/cdc-outbox-verb", "setup", "--accept-gap", "--set", "log.level=a  b")
	cmd.Env = []string{"PATH=" + folder + ":" + os.Getenv("PATH"), "CDC_OUTBOX_SOURCE_URL=postgres:///secret", "OTHER=x"}
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	words := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	end := slices.Index(words, "--")
	if end < 0 || !slices.Equal(words[end+1:], []string{"/usr/local/bin/cdc-outbox", "setup", "--accept-gap", "--set", "log.level=a  b"}) {
		t.Errorf("it runs %q", words)
	}
	for _, property := range []string{
		"User=cdc-outbox", "DynamicUser=yes", "StateDirectory=cdc-outbox", "UMask=0077",
		"Environment=CDC_OUTBOX_CONFIG=/etc/cdc-outbox/config.yaml", `Environment="A=b c" D=e`,
		"LoadCredential=source-url:/etc/cdc-outbox/source-url", "LoadCredential=kafka-password:/etc/cdc-outbox/kafka    unused:/dev/null",
	} {
		if i := slices.Index(words, property); i < 1 || words[i-1] != "--property" || i > end {
			t.Errorf("the verb has no %s: %q", property, words)
		}
	}
	if i := slices.Index(words, "CDC_OUTBOX_SOURCE_URL"); i < 1 || words[i-1] != "--setenv" || i > end {
		t.Errorf("the verb has no variable of ours: %q", words)
	}
	for _, word := range words {
		if strings.HasPrefix(word, "Restart") || strings.HasPrefix(word, "Exec") || strings.Contains(word, "secret") || word == "OTHER" {
			t.Errorf("the verb has %s", word)
		}
	}
}
