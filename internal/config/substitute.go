package config

import (
	"os"
	"regexp"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// substitute replaces ${NAME} by the environment variable, ${file:PATH} by the
// file's contents without its last line end, and $$ by one dollar. Any other
// dollar stays. It works on values after YAML was parsed and what it inserts is
// not looked at again, so that no secret can change the configuration's shape.
func substitute(text string, environ map[string]string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		b.WriteString(before)
		switch {
		case !found:
			return b.String(), nil
		case strings.HasPrefix(rest, "$"):
			b.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "{"):
			reference, after, closed := strings.Cut(rest[1:], "}")
			if !closed {
				return "", failure.Configf("close it with }, or write $${ for the two characters", "has a ${ without }")
			}
			replacement, err := lookUp(reference, environ)
			if err != nil {
				return "", err
			}
			b.WriteString(replacement)
			text = after
		default:
			b.WriteByte('$')
			text = rest
		}
	}
}

func lookUp(reference string, environ map[string]string) (string, error) {
	if path, ok := strings.CutPrefix(reference, "file:"); ok {
		contents, err := os.ReadFile(path)
		if err != nil {
			return "", failure.Configf("create the file or correct the path", "names the file %s, which cannot be read: %s", path, setting.Reason(err))
		}
		return strings.TrimSuffix(strings.TrimSuffix(string(contents), "\n"), "\r"), nil
	}
	if !variableName.MatchString(reference) {
		return "", failure.Configf("write ${NAME}, ${file:/path}, or $$ for a dollar sign", "has a ${…} that names neither a variable nor a file")
	}
	replacement, ok := environ[reference]
	if !ok {
		return "", failure.Configf("export "+reference+", or use ${file:/path}", "names the environment variable %s, which is not set", reference)
	}
	return replacement, nil
}
