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
// file's contents without the last line end, and $$ by a single dollar. Any other
// dollar stays. PATH may have variables itself. substitute works on values after
// the parsing of YAML, and does not look again at inserted text, so no secret can
// change the configuration's shape.
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
			reference, after, closed := cutReference(rest[1:])
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

// cutReference cuts text at the brace closing the reference in front, perhaps
// with others inside.
func cutReference(text string) (reference, after string, closed bool) {
	open := 1
	for i, c := range text {
		switch {
		case strings.HasPrefix(text[i:], "${"):
			open++
		case c == '}':
			open--
		}
		if open == 0 {
			return text[:i], text[i+1:], true
		}
	}
	return "", "", false
}

// credentials is the variable with the folder of a systemd unit's credentials,
// present only while the unit runs.
const credentials = "CREDENTIALS_DIRECTORY"

// asService is the remedy for a credential looked for outside of its unit.
const asService = "systemd gives credentials to the service alone: run the verb as the service with cdc-outbox-verb, which lies beside the unit; or "

func lookUp(reference string, environ map[string]string) (string, error) {
	if written, ok := strings.CutPrefix(reference, "file:"); ok {
		path, err := substitute(written, environ)
		if err != nil {
			return "", err
		}
		contents, err := os.ReadFile(path)
		if err != nil {
			remedy := "create the file or correct the path"
			if strings.HasPrefix(path, "/run/credentials/") {
				remedy = asService + remedy
			}
			return "", failure.Configf(remedy, "names the file %s, which cannot be read: %s", written, setting.Reason(err))
		}
		return strings.TrimSuffix(strings.TrimSuffix(string(contents), "\n"), "\r"), nil
	}
	if !variableName.MatchString(reference) {
		return "", failure.Configf("write ${NAME}, ${file:/path}, or $$ for a dollar sign", "has a ${…} that names neither a variable nor a file")
	}
	replacement, ok := environ[reference]
	if !ok {
		remedy := "export " + reference + ", or use ${file:/path}"
		if reference == credentials {
			remedy = asService + "export " + reference + "=… with the folder of the credentials' files"
		}
		return "", failure.Configf(remedy, "names the environment variable %s, which is not set", reference)
	}
	return replacement, nil
}
