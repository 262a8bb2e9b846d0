package setting

import (
	"os"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Written is a value as written, with the names of files in place of their contents:
// Read gives the present value.
type Written []Piece

// Piece is a text, or the content of a file.
type Piece struct {
	Text Secret
	// Path is the file's; "" for a text.
	Path string
	// Shown is Path as written, for messages.
	Shown string
}

// Files reports whether the value may change.
func (w Written) Files() bool {
	for _, p := range w {
		if p.Path != "" {
			return true
		}
	}
	return false
}

// Key is equal for equal values, and as secret as they are.
func (w Written) Key() string {
	var b strings.Builder
	for _, p := range w {
		b.WriteString(p.Text.Reveal() + "\x00" + p.Path + "\x00")
	}
	return b.String()
}

// Read reads the files, each without its last line end.
func (w Written) Read() (string, error) {
	var b strings.Builder
	for _, p := range w {
		if p.Path == "" {
			b.WriteString(p.Text.Reveal())
			continue
		}
		contents, err := os.ReadFile(p.Path)
		if err != nil {
			remedy := "create the file or correct the path"
			if strings.HasPrefix(p.Path, "/run/credentials/") {
				remedy = AsService + remedy
			}
			return "", failure.Configf(remedy, "names the file %s, which cannot be read: %s", p.Shown, Reason(err))
		}
		b.WriteString(strings.TrimSuffix(strings.TrimSuffix(string(contents), "\n"), "\r"))
	}
	return b.String(), nil
}

// AsService is the remedy for a credential looked for outside of its unit.
const AsService = "systemd gives credentials to the service alone: run the verb as the service with cdc-outbox-verb, which lies beside the unit; or "
