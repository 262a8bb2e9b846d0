package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
)

// program is the process as the verbs see it: its surroundings are those of the
// operating system in main, memory in tests.
type program struct {
	environ        []string
	stdout, stderr io.Writer
	// connect runs the connector until ctx ends or it fails; nil is
	// pipeline.Run.
	connect func(context.Context, pipeline.Options) error
	// command completes the commands in remedies, once flags are read.
	command invocation.Invocation
	// fatal takes the error ending the program, in place of stderr; nil until a
	// configuration says that the log is JSON.
	fatal *zap.Logger
}

// verb is a command of the program.
type verb struct {
	name    string
	summary string // a single line
	detail  string // paragraphs for the verb's help; may be empty
	example string // lines, each a command or a comment
	// prepare declares the flags and returns what to do once they are parsed.
	prepare func(*flag.FlagSet) action
}

// action does a verb's work. Its error is printed, and the error's
// failure.Class is the exit code.
type action func(context.Context, *program) error

// errHelp ends a command line that asked for help and got it.
var errHelp = errors.New("help")

// run executes the command line and returns the exit code. It reports the
// error, if any: nothing that it calls does.
func (p *program) run(ctx context.Context, args []string) int {
	err := p.execute(ctx, args)
	if err == nil || errors.Is(err, errHelp) {
		return 0
	}
	p.report(ctx, err)
	return failure.ClassOf(err).ExitCode()
}

func (p *program) execute(ctx context.Context, args []string) error {
	v, args, err := p.choose(args)
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet(v.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors and help are ours to print
	act := v.prepare(flags)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		v.help(p.stdout, flags)
		return errHelp
	case err != nil:
		return flagError(v, flags, err)
	case flags.NArg() > 0:
		return v.usagef("takes no arguments, only flags; got %d", flags.NArg())
	}
	return act(ctx, p)
}

// choose finds the verb and its arguments.
func (p *program) choose(args []string) (verb, []string, error) {
	if len(args) == 0 {
		return verb{}, nil, failure.Configf("run cdc-outbox --help", "no verb given; the verbs are %s", strings.Join(verbNames(), ", "))
	}
	name, rest := args[0], args[1:]
	switch name {
	case "--version", "-version":
		name = "version"
	case "help", "--help", "-help", "-h":
		if len(rest) == 0 {
			help(p.stdout)
			return verb{}, nil, errHelp
		}
		name, rest = strings.Join(rest, " "), []string{"--help"}
	}
	first, _, _ := strings.Cut(name, " ")
	if err := moved(first); err != nil {
		return verb{}, nil, err
	}
	if name == "txn" {
		if len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
			return verb{}, nil, failure.Configf("cdc-outbox txn list --help, or cdc-outbox txn abort --help", "txn is the first word of two verbs: txn list, txn abort")
		}
		name, rest = name+" "+rest[0], rest[1:]
	}
	for _, v := range verbs() {
		if v.name == name {
			return v, rest, nil
		}
	}
	return verb{}, nil, unknownVerb(name)
}

// moved returns an error for verbs of other programs of ours, and nil for the
// rest.
func moved(name string) error {
	switch name {
	case "demo":
		return failure.Configf("in a clone of the repository: make demo; elsewhere: "+
			"go install github.com/cdc-outbox/cdc-outbox/cmd/cdc-outbox-demo@latest, then cdc-outbox-demo; "+
			"as an image: docker run --rm --interactive --tty --network host cdc-outbox-demo, "+
			"which docker build --tag cdc-outbox-demo --target cdc-outbox-demo . makes",
			"demo is no verb: the program cdc-outbox-demo shows the whole thing on one machine")
	case "idempotency":
		return failure.Configf("install it with 'go install github.com/cdc-outbox/cdc-outbox/idempotency/cmd/cdc-outbox-idempotency@latest'; "+
			"then for example: cdc-outbox-idempotency inspect --help", "idempotency is no verb: the program cdc-outbox-idempotency has inspect, release, purge and sweep")
	}
	return nil
}

// harmless matches what can be repeated in a message: not a URL with a password
// that lost its flag.
var harmless = regexp.MustCompile(`^-{0,2}[A-Za-z][\w-]{0,30}$`)

func unknownVerb(name string) error {
	switch meant := nearest.To(name, verbNames()); {
	case strings.HasPrefix(name, "-"):
		return failure.Configf("for example: cdc-outbox run -c cdc-outbox.yaml", "the verb comes first, before its flags")
	case meant != "":
		return failure.Configf("did you mean cdc-outbox "+meant+"?", "unknown verb%s", quote(name))
	}
	return failure.Configf("run cdc-outbox --help", "unknown verb%s; the verbs are %s", quote(name), strings.Join(verbNames(), ", "))
}

func quote(name string) string {
	if harmless.MatchString(name) {
		return fmt.Sprintf(" %q", name)
	}
	return ""
}

// usagef returns a usage error of the verb.
func (v *verb) usagef(format string, args ...any) error {
	return failure.Configf("run cdc-outbox "+v.name+" --help", v.name+" "+format, args...)
}

// synonyms are flags of other programs, with our names for them.
var synonyms = map[string]string{"config": "c", "config-file": "c", "file": "c", "dry-run": "print"}

// hints are for flags a verb does not need.
var hints = map[string]string{
	"run dry-run":      "cdc-outbox check looks at all that run needs, cdc-outbox tail prints what it would publish; neither changes anything",
	"teardown dry-run": "leave it out: without --yes teardown changes nothing and says what it would do",
}

// flagError turns package flag's error into ours. Only the text tells an
// unknown flag.
func flagError(v verb, flags *flag.FlagSet, err error) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return v.usagef("has a bad flag: %v", err)
	}
	var names []string
	flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	if hint, ok := hints[v.name+" "+name]; ok {
		return failure.Configf(hint, "%s has no flag%s", v.name, quote(dashes(name)))
	}
	meant := nearest.To(name, names)
	if usual := synonyms[name]; flags.Lookup(usual) != nil {
		meant = usual
	}
	if meant != "" {
		return failure.Configf("did you mean "+dashes(meant)+"?", "%s has no flag%s", v.name, quote(dashes(name)))
	}
	return v.usagef("has no flag%s", quote(dashes(name)))
}
