// Package invocation completes the commands of ours that remedies name, so they
// can be typed as they are: a command without the configuration file of the one
// that failed reads another configuration, or none, one without its --set is
// about another slot or database, one without the pipeline is about all of
// them, and one not typed as its Place wants it lacks the service's
// credentials.
//
// Non-goals: the environment, the shell's.
package invocation

import (
	"encoding/json"
	"regexp"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Invocation is what a command line says of the configuration to read. The zero
// value changes nothing. Invocation may be used concurrently.
type Invocation struct {
	File     string // given with -c; empty if it was not
	Set      string // of Overrides
	Pipeline string // the only that a message is about; empty for all
	Place    Place  // where the program runs
	// Connector is of Place.Connector.
	Connector string
}

// Overrides are the flags --set of a command line, as a shell takes them. The value of a
// key that is secret is left to the reader.
func Overrides(assignments []string, secret func(key string) bool) string {
	var b strings.Builder
	for _, assignment := range assignments {
		key, _, _ := strings.Cut(assignment, "=")
		if secret(key) {
			b.WriteString(" --set " + quote(key) + "=…")
			continue
		}
		b.WriteString(" --set " + quote(assignment))
	}
	return b.String()
}

// ownCommand is a command of ours in a text, with what it begins with, and the
// beginning of the flags, where completed.
var ownCommand = regexp.MustCompile(`(` + compose + `|verb\.sh -n \S+ -d \S*)?\bcdc-outbox (setup|adopt|teardown|check|status|tail|run|txn list|txn abort)\b( -c | --set | --pipeline )?`)

// In returns the text with the commands completed; those that are already stay
// as they are.
func (i Invocation) In(text string) string {
	return i.complete(text, func(s string) string { return s })
}

// InJSON is In for a text that is JSON.
func (i Invocation) InJSON(text string) string {
	return i.complete(text, func(s string) string {
		quoted, err := json.Marshal(s)
		if err != nil {
			return s // a string always can be
		}
		return string(quoted[1 : len(quoted)-1])
	})
}

func (i Invocation) complete(text string, encode func(string) string) string {
	if i == (Invocation{}) {
		return text
	}
	return ownCommand.ReplaceAllStringFunc(text, func(command string) string {
		if !strings.HasPrefix(command, "cdc-outbox") {
			return command
		}
		runs := strings.HasPrefix(command, "cdc-outbox run")
		if !runs { // which the place does by itself
			command = i.Place.program() + i.Connector + strings.TrimPrefix(command, "cdc-outbox")
		}
		if strings.HasSuffix(command, " ") {
			return command
		}
		if i.File != "" {
			command += encode(" -c " + quote(i.File))
		}
		command += encode(i.Set)
		if i.Pipeline != "" && !runs { // run runs all
			command += encode(" --pipeline " + quote(i.Pipeline))
		}
		return command
	})
}

// plain is what a shell takes as is.
var plain = regexp.MustCompile(`^[\w./:@%+,=-]+$`)

// quote returns the word as a shell takes it.
func quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Log returns a logger completing the commands in fields named remedy.
func (i Invocation) Log(log *zap.Logger) *zap.Logger {
	if i == (Invocation{}) {
		return log
	}
	return log.WithOptions(zap.WrapCore(func(inner zapcore.Core) zapcore.Core { return core{inner, i} }))
}

// core is a logger's core with completed remedies.
type core struct {
	zapcore.Core
	in Invocation
}

func (c core) With(fields []zapcore.Field) zapcore.Core { return core{c.Core.With(fields), c.in} }

// Check must be our own: that of the embedded core would have it write alone.
func (c core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	completed := make([]zapcore.Field, len(fields))
	for i, f := range fields {
		if f.Key == "remedy" && f.Type == zapcore.StringType {
			f.String = c.in.In(f.String)
		}
		completed[i] = f
	}
	return c.Core.Write(entry, completed)
}
