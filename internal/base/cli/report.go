package cli

import (
	"encoding/json"
	"io"
	"strings"
)

// Report is a verb's result.
type Report interface {
	WriteText(io.Writer) error
}

// Render returns the report, for people or as JSON.
func Render(r Report, asJSON bool) (string, error) {
	var b strings.Builder
	if !asJSON {
		err := r.WriteText(&b)
		return b.String(), err
	}
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(r)
	return b.String(), err
}
