package cli

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// pages is a program with verbs, of which two share a first word.
func pages(out *strings.Builder) *Program[*strings.Builder] {
	says := func(name string) Verb[*strings.Builder] {
		return Verb[*strings.Builder]{Name: name, Summary: "does " + name, Example: "pages " + name + " --twice", Prepare: func(flags *flag.FlagSet) Action[*strings.Builder] {
			twice := flags.Bool("twice", false, "do it `TWICE`")
			return func(_ context.Context, p *strings.Builder) error {
				p.WriteString(name)
				if *twice {
					return failure.Lossf("once", "torn")
				}
				return nil
			}
		}}
	}
	return &Program[*strings.Builder]{
		Name: "pages", About: "pages turns pages.", Usage: "VERB", Notes: "The end.\n", Stdout: out,
		Verbs: []Verb[*strings.Builder]{says("turn"), says("mark set"), says("mark clear")},
		Elsewhere: func(word string) error {
			if word == "read" {
				return failure.Configf("use eyes", "read is no verb")
			}
			return nil
		},
		Synonyms: map[string]string{"double": "twice"},
		Hints:    map[string]string{"turn thrice": "twice is enough"},
	}
}

// alone is the same program with a single verb without a name.
func alone(out *strings.Builder) *Program[*strings.Builder] {
	p := pages(out)
	p.Verbs = p.Verbs[:1]
	p.Verbs[0].Name = ""
	return p
}

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		program       func(*strings.Builder) *Program[*strings.Builder]
		args          string
		code          int
		out           string
		error, remedy string
	}{
		{pages, "turn", 0, "turn", "", ""},
		{pages, "mark set", 0, "mark set", "", ""},
		{pages, "turn --twice", 3, "turn", "torn", "once"},
		{pages, "help", 0, "pages turns pages.\n\nUsage: pages VERB\n\n  turn        does turn\n", "", ""},
		{pages, "help mark clear", 0, "pages mark clear: does mark clear.\n\nFlags:\n  --twice TWICE  do it TWICE\n\nExample:\n  pages mark clear --twice\n", "", ""},
		{pages, "--version", 0, "pages ", "", ""},
		{pages, "", 2, "", "no verb given; the verbs are turn, mark set, mark clear, version", "run pages --help"},
		{pages, "mark", 2, "", "mark is the first word of 2 verbs: mark set, mark clear", "pages mark set --help, or pages mark clear --help"},
		{pages, "mark --twice", 2, "", "mark is the first word of 2 verbs: mark set, mark clear", "pages mark set --help, or pages mark clear --help"},
		{pages, "mark sett", 2, "", `unknown verb`, "did you mean pages mark set?"},
		{pages, "trun", 2, "", `unknown verb "trun"`, "did you mean pages turn?"},
		{pages, "burn!", 2, "", "unknown verb; the verbs are turn, mark set, mark clear, version", "run pages --help"},
		{pages, "--twice turn", 2, "", "the verb comes first, before its flags", "for example: pages turn --twice"},
		{pages, "read", 2, "", "read is no verb", "use eyes"},
		{pages, "help read aloud", 2, "", "read is no verb", "use eyes"},
		{pages, "turn leaf", 2, "", "turn takes no arguments, only flags; got 1", "run pages turn --help"},
		{pages, "turn --twcie", 2, "", `turn has no flag "--twcie"`, "did you mean --twice?"},
		{pages, "turn --double", 2, "", `turn has no flag "--double"`, "did you mean --twice?"},
		{pages, "turn --thrice", 2, "", `turn has no flag "--thrice"`, "twice is enough"},
		{pages, "turn --twice=perhaps", 2, "", `turn has a bad flag: invalid boolean value "perhaps" for -twice: parse error`, "run pages turn --help"},
		{alone, "", 0, "turn", "", ""},
		{alone, "--help", 0, "pages: does turn.\n", "", ""},
		{alone, "--version", 0, "pages ", "", ""},
		{alone, "leaf", 2, "", "pages takes no arguments, only flags; got 1", "run pages --help"},
		{alone, "-q", 2, "", `pages has no flag "-q"`, "run pages --help"},
	} {
		var out strings.Builder
		var reported []error
		code := tt.program(&out).Run(t.Context(), &out, strings.Fields(tt.args), func(_ context.Context, err error) { reported = append(reported, err) })
		if code != tt.code || !strings.HasPrefix(out.String(), tt.out) || tt.out == "" && out.Len() > 0 {
			t.Errorf("%q: code %d, output %q", tt.args, code, out.String())
		}
		err := errors.Join(reported...)
		if tt.error == "" && err == nil {
			continue
		}
		if len(reported) != 1 || err.Error() != tt.error || failure.RemedyOf(err) != tt.remedy {
			t.Errorf("%q: %d errors: %v, remedy %q; want %s, %s", tt.args, len(reported), err, failure.RemedyOf(err), tt.error, tt.remedy)
		}
	}
}

func TestAVersionNobodySetIsTheGoTools(t *testing.T) {
	if ver, rev := Build("", ""); ver == "" || rev == "" {
		t.Errorf("version %q, commit %q", ver, rev)
	}
	if ver, rev := Build("v1.2.3", "abc"); ver != "v1.2.3" || rev != "abc" {
		t.Errorf("version %q, commit %q", ver, rev)
	}
}

func TestGetenv(t *testing.T) {
	environ := []string{"A=1", "AB=2", "A=3=4"}
	for name, want := range map[string]string{"A": "3=4", "AB": "2", "B": ""} {
		if got := Getenv(environ, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
