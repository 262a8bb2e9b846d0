package setting

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Written is a value as written, with the names of files in place of their contents:
// Read gives the present value. The files may change, as in a mounted secret. Only JSON
// reveals the texts.
type Written []Piece

// Piece is a text, or the content of a file.
type Piece struct {
	Text string `json:"text,omitempty"`
	// Path is the file's; "" for a text.
	Path string `json:"file,omitempty"`
	// Shown is Path as written, for messages.
	Shown string `json:"-"`
}

// Format implements fmt.Formatter: no verb shows a text.
func (w Written) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// Changes reports whether the value has a file.
func (w Written) Changes() bool {
	return slices.ContainsFunc(w, func(p Piece) bool { return p.Path != "" })
}

// Files are the paths.
func (w Written) Files() (all []string) {
	for _, p := range w {
		if p.Path != "" {
			all = append(all, p.Path)
		}
	}
	return all
}

// Key is equal for equal values, and as secret as they are.
func (w Written) Key() string {
	var b strings.Builder
	for _, p := range w {
		b.WriteString(p.Text + "\x00" + p.Path + "\x00")
	}
	return b.String()
}

// Read reads the files, each without its last line end. The error is about the value of an
// option: it names the file as written, and has a remedy.
func (w Written) Read() (string, error) {
	text, failed, err := w.read()
	if err == nil {
		return text, nil
	}
	remedy := "create the file or correct the path"
	if strings.HasPrefix(failed.Path, "/run/credentials/") {
		remedy = AsService + remedy
	}
	return "", failure.Configf(remedy, "names the file %s, which cannot be read: %s", failed.Shown, Reason(err))
}

// ReadAgain is Read of a value read before. The error, of class failure.Transient, names the
// file by its path.
func (w Written) ReadAgain() (string, error) {
	text, failed, err := w.read()
	if err != nil {
		return "", fmt.Errorf("the file %s cannot be read: %s", failed.Path, Reason(err))
	}
	return text, nil
}

func (w Written) read() (text string, failed Piece, err error) {
	var b strings.Builder
	for _, p := range w {
		if p.Path == "" {
			b.WriteString(p.Text)
			continue
		}
		contents, err := os.ReadFile(p.Path)
		if err != nil {
			return "", p, err
		}
		b.WriteString(strings.TrimSuffix(strings.TrimSuffix(string(contents), "\n"), "\r"))
	}
	return b.String(), Piece{}, nil
}

// AsService is the remedy for a credential looked for outside of its unit.
const AsService = "systemd gives credentials to the service alone: run the verb as the service with cdc-outbox-verb, which lies beside the unit; or "
