package setting

import (
	"maps"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Files are the members of a login written with files, by their keys. Each use reads the files
// again. Several goroutines may use the same Files.
type Files map[string]Written

// formerTexts are by the keys of values.
var formerTexts Former[string, string]

// Present is a member's present value, or else the last useful value. A member without files,
// and a member whose files never were of use, has the value of the start.
func (f Files) Present(name, start string) string {
	written, ok := f[name]
	if !ok {
		return start
	}
	text, err := formerTexts.Or(written.Key(), func() (string, error) { return filled(name, written) })
	if err != nil {
		return start
	}
	return text
}

// Secret is Present for a secret.
func (f Files) Secret(name string, start Secret) Secret {
	return Secret(f.Present(name, start.Reveal()))
}

// Troubles are why present contents are of no use, with the members' keys behind the prefix.
func (f Files) Troubles(prefix string) (troubles []error) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if _, err := filled(prefix+name, f[name]); err != nil {
			troubles = append(troubles, err)
		}
	}
	return troubles
}

// filled reads a value, and refuses an empty value.
func filled(key string, written Written) (string, error) {
	text, err := written.Read()
	if err != nil {
		return "", failure.Configf(failure.RemedyOf(err), "%s %w", key, err)
	}
	if text == "" {
		return "", failure.Configf("write the value into the file", "%s is empty: its file has no content", key)
	}
	return text, nil
}

// Paths are the files.
func (f Files) Paths() (paths []string) {
	for _, written := range f {
		paths = append(paths, written.Files()...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// Rotation is the remedy for a refused login with files.
func (f Files) Rotation() string {
	return "put the present login into " + strings.Join(f.Paths(), ", ") + ", or wait for its rotation: it is read again at each attempt"
}
