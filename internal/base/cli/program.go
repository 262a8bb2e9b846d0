package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
)

// Program is a command line. P is the process as its verbs see it.
type Program[P any] struct {
	Name  string // typed by users
	About string // the first line of the help
	Usage string // behind the name
	Notes string // paragraphs below the verbs
	// Verbs are in the order of the help; the verb version follows them. A program
	// with a single verb without a name has flags alone.
	Verbs []Verb[P]
	// Elsewhere returns an error for the verbs of other programs, and nil for other
	// words. Optional.
	Elsewhere func(word string) error
	// Synonyms are flags of other programs, with our names for them. Optional.
	Synonyms map[string]string
	// Hints are remedies for flags a verb does not need, by "verb flag". Optional.
	Hints map[string]string
	// Version and Commit are those of the release build, as for Build.
	Version, Commit string
	// Stdout is for help and version. Required.
	Stdout io.Writer
}

// Verb is a command of a program.
type Verb[P any] struct {
	Name    string // one or two words
	Summary string // a single line
	Detail  string // paragraphs for the verb's help; may be empty
	Example string // lines, each a command or a comment
	// Argument names the verb's single argument, FILE for example, which flags.Arg(0)
	// is for the action. Flags may come before and behind. Empty: flags alone.
	Argument string
	// Prepare declares the flags and returns what to do once they are parsed.
	Prepare func(*flag.FlagSet) Action[P]
}

// Action does a verb's work.
type Action[P any] func(context.Context, P) error

// Run executes the command line and returns the exit code. report gets the
// error, if any.
func (c *Program[P]) Run(ctx context.Context, p P, args []string, report func(context.Context, error)) int {
	act, err := c.Parse(args)
	if err == nil {
		err = act(ctx, p)
	}
	if err == nil {
		return 0
	}
	report(ctx, err)
	return failure.ClassOf(err).ExitCode()
}

// Parse returns the action of a command line, or its usage error.
func (c *Program[P]) Parse(args []string) (Action[P], error) {
	v, args, err := c.choose(args)
	if err != nil {
		return nil, err
	}
	flags := flag.NewFlagSet(v.Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors and help are ours to print
	act := v.Prepare(flags)
	err = flags.Parse(args)
	if v.Argument != "" && err == nil && flags.NArg() > 0 {
		argument, behind := flags.Arg(0), flags.Args()[1:]
		err = flags.Parse(append(slices.Clone(behind), "--", argument))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return c.print(c.verbHelp(v, flags)), nil
	case err != nil:
		return nil, c.flagError(v, flags, err)
	case v.Argument == "" && flags.NArg() > 0:
		return nil, c.usagef(v, "takes no arguments, only flags; got %d", flags.NArg())
	case v.Argument != "" && (flags.NArg() != 1 || flags.Arg(0) == ""):
		return nil, c.usagef(v, "takes one argument, %s, beside its flags", v.Argument)
	}
	return act, nil
}

// choose returns the verb of a command line, and the verb's arguments.
func (c *Program[P]) choose(args []string) (v Verb[P], rest []string, err error) {
	if len(args) > 0 && (args[0] == "--version" || args[0] == "-version") {
		return c.versionVerb(), args[1:], nil
	}
	if c.Verbs[0].Name == "" {
		return c.Verbs[0], args, nil
	}
	if len(args) == 0 {
		return v, nil, failure.Configf("run "+c.Name+" --help", "no verb given; the verbs are %s", strings.Join(c.names(), ", "))
	}
	switch args[0] {
	case "help", "--help", "-help", "-h":
		if len(args) == 1 {
			return c.helpVerb(), nil, nil
		}
		args = []string{strings.Join(args[1:], " "), "--help"}
	}
	return c.find(args[0], args[1:])
}

// find returns the verb of a name, possibly of two words, and its arguments.
func (c *Program[P]) find(name string, args []string) (v Verb[P], rest []string, err error) {
	if c.Elsewhere != nil {
		first, _, _ := strings.Cut(name, " ")
		if err := c.Elsewhere(first); err != nil {
			return v, nil, err
		}
	}
	var pairs, helps []string
	for _, v := range c.verbs() {
		if v.Name == name {
			return v, args, nil
		}
		if strings.HasPrefix(v.Name, name+" ") {
			pairs, helps = append(pairs, v.Name), append(helps, c.Name+" "+v.Name+" --help")
		}
	}
	switch {
	case len(pairs) == 0:
		return v, nil, c.unknown(name)
	case len(args) == 0 || strings.HasPrefix(args[0], "-"):
		return v, nil, failure.Configf(strings.Join(helps, ", or "), "%s is the first word of %d verbs: %s", name, len(pairs), strings.Join(pairs, ", "))
	}
	return c.find(name+" "+args[0], args[1:])
}

func (c *Program[P]) unknown(name string) error {
	switch meant := nearest.To(name, c.names()); {
	case strings.HasPrefix(name, "-"):
		example, _, _ := strings.Cut(c.Verbs[0].Example, "\n")
		return failure.Configf("for example: "+example, "the verb comes first, before its flags")
	case meant != "":
		return failure.Configf("did you mean "+c.Name+" "+meant+"?", "unknown verb%s", Quote(name))
	}
	return failure.Configf("run "+c.Name+" --help", "unknown verb%s; the verbs are %s", Quote(name), strings.Join(c.names(), ", "))
}

func (c *Program[P]) verbs() []Verb[P] {
	return append(c.Verbs[:len(c.Verbs):len(c.Verbs)], c.versionVerb())
}

func (c *Program[P]) names() (names []string) {
	for _, v := range c.verbs() {
		names = append(names, v.Name)
	}
	return names
}

func (c *Program[P]) versionVerb() Verb[P] {
	ver, rev := Build(c.Version, c.Commit)
	text := fmt.Sprintf("%s %s\ncommit %s\n%s %s/%s\n", c.Name, ver, rev, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return Verb[P]{
		Name:    "version",
		Summary: "prints version, commit and Go version",
		Example: c.Name + " version",
		Prepare: func(*flag.FlagSet) Action[P] { return c.print(text) },
	}
}

func (c *Program[P]) helpVerb() Verb[P] {
	return Verb[P]{Prepare: func(*flag.FlagSet) Action[P] { return c.print(c.help()) }}
}

// print returns an action printing a text.
func (c *Program[P]) print(text string) Action[P] {
	return func(context.Context, P) error {
		_, err := io.WriteString(c.Stdout, text)
		return err
	}
}

// usagef returns a usage error of the verb.
func (c *Program[P]) usagef(v Verb[P], format string, args ...any) error {
	return failure.Configf("run "+c.typed(v)+" --help", cmp.Or(v.Name, c.Name)+" "+format, args...)
}

// typed is how users begin a command.
func (c *Program[P]) typed(v Verb[P]) string { return strings.TrimSpace(c.Name + " " + v.Name) }
