package setting

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Text is a value made of text and files. The files may change, as in a mounted
// secret.
type Text []Part

// Part is text, or else a file's path.
type Part struct {
	Text string `json:"text,omitempty"`
	File string `json:"file,omitempty"`
}

// Changes reports whether the text has a file.
func (t Text) Changes() bool {
	return slices.ContainsFunc(t, func(p Part) bool { return p.File != "" })
}

// Files are the paths.
func (t Text) Files() (all []string) {
	for _, p := range t {
		if p.File != "" {
			all = append(all, p.File)
		}
	}
	return all
}

// Read returns the text with the files' present contents, without last line ends.
func (t Text) Read() (string, error) {
	var b strings.Builder
	for _, p := range t {
		if p.File == "" {
			b.WriteString(p.Text)
			continue
		}
		contents, err := os.ReadFile(p.File)
		if err != nil {
			return "", fmt.Errorf("the file %s cannot be read: %s", p.File, Reason(err))
		}
		b.WriteString(strings.TrimSuffix(strings.TrimSuffix(string(contents), "\n"), "\r"))
	}
	return b.String(), nil
}
