package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
)

// name is what users type.
const name = "cdc-outbox-idempotency"

// program is the process as the verbs see it: from the operating system in
// main, in memory in tests.
type program struct {
	environ        []string
	stdout, stderr io.Writer
}

// verb is a command of the program.
type verb struct {
	name    string
	summary string // a single line
	detail  string // paragraphs for the verb's help; may be empty
	example string // a single command
	// prepare declares the flags and returns what to do once they are parsed.
	prepare func(*flag.FlagSet) action
}

// action does a verb's work. Its error is printed, and the error's
// failure.Class is the exit code.
type action func(context.Context, *program) error

func verbs() []verb {
	return []verb{inspectVerb(), releaseVerb(), purgeVerb(), sweepVerb(), versionVerb()}
}

func verbNames() []string {
	var names []string
	for _, v := range verbs() {
		names = append(names, v.name)
	}
	return names
}

func versionVerb() verb {
	return verb{
		name:    "version",
		summary: "prints the version",
		example: name + " version",
		prepare: func(*flag.FlagSet) action {
			return func(_ context.Context, p *program) error {
				_, err := fmt.Fprintln(p.stdout, name, build())
				return err
			}
		},
	}
}

// version is set by the release build: -ldflags "-X main.version=v1.2.3".
var version string

// build names the version: the release build's, otherwise the Go tool's.
func build() string {
	if info, ok := debug.ReadBuildInfo(); ok && version == "" {
		return info.Main.Version
	}
	return version
}

// run executes the command line and returns the exit code. run alone prints the
// error, if any, to stderr.
func (p *program) run(ctx context.Context, args []string) int {
	err := p.execute(ctx, args)
	if err == nil {
		return 0
	}
	text := "error: " + err.Error() + "\n"
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		text = name + ": stopped by a signal\n"
	}
	if remedy := failure.RemedyOf(err); remedy != "" {
		text += "remedy: " + remedy + "\n"
	}
	_, _ = io.WriteString(p.stderr, text) // where stderr is gone there is nobody to tell
	return failure.ClassOf(err).ExitCode()
}

func (p *program) execute(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return failure.Configf("run "+name+" --help", "no verb given; the verbs are %s", strings.Join(verbNames(), ", "))
	}
	if asksForHelp(args[0]) {
		if len(args) == 1 {
			return help(p.stdout)
		}
		args = []string{args[1], "--help"}
	}
	v, err := find(args[0])
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet(v.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors and help are ours to print
	act := v.prepare(flags)
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return v.help(p.stdout, flags)
	case err != nil:
		return flagError(v, flags, err)
	case flags.NArg() > 0:
		return v.usagef("takes no arguments, only flags; got %d", flags.NArg())
	}
	return act(ctx, p)
}

// find returns the verb of the name.
func find(word string) (verb, error) {
	for _, v := range verbs() {
		if v.name == word || word == "--version" && v.name == "version" {
			return v, nil
		}
	}
	remedy := "run " + name + " --help"
	if meant := nearest.To(word, verbNames()); meant != "" {
		remedy = "did you mean " + name + " " + meant + "?"
	}
	return verb{}, failure.Configf(remedy, "unknown verb%s; the verbs are %s", quote(word), strings.Join(verbNames(), ", "))
}

// harmless matches text that a message may repeat: not a URL with a password
// that lost its flag.
var harmless = regexp.MustCompile(`^-{0,2}[A-Za-z][\w-]{0,30}$`)

func quote(word string) string {
	if harmless.MatchString(word) {
		return fmt.Sprintf(" %q", word)
	}
	return ""
}

// usagef returns a usage error of the verb.
func (v *verb) usagef(format string, args ...any) error {
	return failure.Configf("run "+name+" "+v.name+" --help", v.name+" "+format, args...)
}

// flagError turns package flag's error into ours. The text is the only thing
// telling an unknown flag.
func flagError(v verb, flags *flag.FlagSet, err error) error {
	word, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return v.usagef("has a bad flag: %v", err)
	}
	var names []string
	flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	if meant := nearest.To(word, names); meant != "" {
		return failure.Configf("did you mean --"+meant+"?", "%s has no flag%s", v.name, quote("--"+word))
	}
	return v.usagef("has no flag%s", quote("--"+word))
}

// getenv returns the last value of a variable, or "".
func (p *program) getenv(variable string) string {
	value := ""
	for _, assignment := range p.environ {
		if v, ok := strings.CutPrefix(assignment, variable+"="); ok {
			value = v
		}
	}
	return value
}

// report is a verb's result.
type report interface {
	WriteText(io.Writer) error
}

// show prints the report on stdout, for people or as JSON.
func (p *program) show(r report, asJSON bool) error {
	if !asJSON {
		return r.WriteText(p.stdout)
	}
	encoder := json.NewEncoder(p.stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}
