package config

import (
	"regexp"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// scope is where references are looked up.
type scope struct {
	environ map[string]string
	inputs  *inputs
}

// substitute replaces ${NAME} by the environment variable, ${file:PATH} by the
// file's contents without the last line end, and $$ by a single dollar. Any other
// dollar stays. PATH may have variables itself. substitute works on values after
// the parsing of YAML, and does not look again at inserted text, so no secret can
// change the configuration's shape.
func (in scope) substitute(text string) (string, error) {
	written, err := in.parse(text)
	if err != nil {
		return "", err
	}
	return written.Read()
}

// parse is substitute without the contents of files. The files are noted as inputs before a
// first read of theirs, so that no change is missed.
func (in scope) parse(text string) (written setting.Written, err error) {
	literal := func(s string) { written = append(written, setting.Piece{Text: s}) }
	for {
		before, rest, found := strings.Cut(text, "$")
		literal(before)
		switch {
		case !found:
			return written, nil
		case strings.HasPrefix(rest, "$"):
			literal("$")
			text = rest[1:]
		case strings.HasPrefix(rest, "{"):
			reference, after, closed := cutReference(rest[1:])
			if !closed {
				return nil, failure.Configf("close it with }, or write $${ for the two characters", "has a ${ without }")
			}
			piece, err := in.lookUp(reference)
			if err != nil {
				return nil, err
			}
			written = append(written, piece)
			text = after
		default:
			literal("$")
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

func (in scope) lookUp(reference string) (setting.Piece, error) {
	if shown, ok := strings.CutPrefix(reference, "file:"); ok {
		path, err := in.substitute(shown)
		switch {
		case err != nil:
		case path == "":
			err = failure.Configf("write the path: ${file:/path}", "names a file without a path")
		default:
			_, _ = in.inputs.readFile(path) // the error is that of the next read
		}
		return setting.Piece{Path: path, Shown: shown}, err
	}
	if !variableName.MatchString(reference) {
		return setting.Piece{}, failure.Configf("write ${NAME}, ${file:/path}, or $$ for a dollar sign", "has a ${…} that names neither a variable nor a file")
	}
	replacement, ok := in.environ[reference]
	if !ok {
		remedy := "export " + reference + ", or use ${file:/path}"
		if reference == credentials {
			remedy = setting.AsService + "export " + reference + "=… with the folder of the credentials' files"
		}
		return setting.Piece{}, failure.Configf(remedy, "names the environment variable %s, which is not set", reference)
	}
	return setting.Piece{Text: replacement}, nil
}
