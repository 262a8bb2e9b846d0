package cli

import (
	"context"
	"flag"
	"strings"
	"testing"
)

// A verb's argument may be before, between and behind its flags.
func TestAnArgumentIsAnywhereAmongFlags(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"read page", "page false "},
		{"read page --loud", "page true "},
		{"read --loud page -o file", "page true file"},
		{"read -o file page --loud", "page true file"},
		{"read", "read takes one argument, FILE, beside its flags"},
		{"read page other", "read takes one argument, FILE, beside its flags"},
		{"read page --loud other", "read takes one argument, FILE, beside its flags"},
		{"read page --lout", "read has no flag \"--lout\""},
	} {
		var out strings.Builder
		p := &Program[*strings.Builder]{Name: "pages", Stdout: &out, Verbs: []Verb[*strings.Builder]{{
			Name: "read", Argument: "FILE", Example: "pages read FILE",
			Prepare: func(flags *flag.FlagSet) Action[*strings.Builder] {
				loud, file := flags.Bool("loud", false, ""), flags.String("o", "", "")
				return func(context.Context, *strings.Builder) error {
					out.WriteString(flags.Arg(0) + " " + map[bool]string{true: "true", false: "false"}[*loud] + " " + *file)
					return nil
				}
			},
		}}}
		p.Run(t.Context(), &out, strings.Fields(c.line), func(_ context.Context, err error) { out.WriteString(err.Error()) })
		if out.String() != c.want {
			t.Errorf("%s: %q, want %q", c.line, out.String(), c.want)
		}
	}
}
