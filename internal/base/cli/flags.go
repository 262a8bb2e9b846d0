package cli

import (
	"cmp"
	"flag"
	"fmt"
	"regexp"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
)

// flagError turns package flag's error into ours. Only the text tells an
// unknown flag.
func (c *Program[P]) flagError(v Verb[P], flags *flag.FlagSet, err error) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return c.usagef(v, "has a bad flag: %v", err)
	}
	var names []string
	flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	remedy := "run " + c.typed(v) + " --help"
	if meant := nearest.To(name, names); meant != "" {
		remedy = "did you mean " + dashes(meant) + "?"
	}
	if usual := c.Synonyms[name]; flags.Lookup(usual) != nil {
		remedy = "did you mean " + dashes(usual) + "?"
	}
	if hint, ok := c.Hints[v.Name+" "+name]; ok {
		remedy = hint
	}
	return failure.Configf(remedy, "%s has no flag%s", cmp.Or(v.Name, c.Name), Quote(dashes(name)))
}

// dashes writes a flag as users do: a dash before a single letter, otherwise
// two.
func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// harmless matches words fit for a message: no URL with a password whose flag
// was lost.
var harmless = regexp.MustCompile(`^-{0,2}[A-Za-z][\w-]{0,30}$`)

// Quote returns a space and the word in quotes, or nothing for a word possibly
// holding a password.
func Quote(word string) string {
	if harmless.MatchString(word) {
		return fmt.Sprintf(" %q", word)
	}
	return ""
}

// Getenv returns the last value of a variable in an environment, or "".
func Getenv(environ []string, name string) string {
	value := ""
	for _, assignment := range environ {
		if v, ok := strings.CutPrefix(assignment, name+"="); ok {
			value = v
		}
	}
	return value
}
