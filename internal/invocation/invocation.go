// Package invocation completes our commands in remedies, so that they can be
// typed as they are: without the configuration file of the failed command, a
// command reads another configuration, or none; without its --set, it is about
// another slot or database; without its pipeline, about all of them; and typed
// in the wrong Place, it lacks the service's credentials.
//
// Non-goals: the environment, which is the shell's.
package invocation

import (
	"encoding/json"
	"regexp"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Invocation is what a command line says of the configuration to read. The zero
// value changes nothing. An Invocation may be used concurrently.
type Invocation struct {
	File     string // given with -c; empty if not
	Set      string // of Overrides
	Pipeline string // the only one that a message is about; empty for all
	Place    Place  // where the program runs
	// Connector is of Place.Connector.
	Connector string
}

// Overrides are the flags --set of a command line, as a shell takes them. The
// value of a secret key is left to the reader.
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

// ownCommand matches a command of ours in a text, with what it begins with, and
// the beginning of its flags, where it has been completed.
var ownCommand = regexp.MustCompile(`(` + compose + `|verb\.sh -n \S+ -d \S*)?\bcdc-outbox (setup|adopt|teardown|check|status|wait|tail|run --set errors\.on_loss=repair|run|verify|repair|replay|dead-letters list|dead-letters show|dead-letters redrive|quarantine list|quarantine retry|txn list|txn abort)\b( -c | --set | --pipeline )?`)

// In returns the text with its commands completed; completed commands stay as
// they are.
func (i Invocation) In(text string) string {
	return i.complete(text, func(s string) string { return s })
}

// InJSON is In for JSON.
func (i Invocation) InJSON(text string) string {
	return i.complete(text, func(s string) string {
		quoted, err := json.Marshal(s)
		if err != nil {
			return s // a string always can be
		}
		return string(quoted[1 : len(quoted)-1])
	})
}

// repairRun is a run typed once, beside the service's own.
const repairRun = "cdc-outbox run --set errors.on_loss=repair"

func (i Invocation) complete(text string, encode func(string) string) string {
	if i == (Invocation{}) {
		return text
	}
	return ownCommand.ReplaceAllStringFunc(text, func(command string) string {
		if !strings.HasPrefix(command, "cdc-outbox") {
			return command
		}
		runs := strings.HasPrefix(command, "cdc-outbox run")
		if !runs || strings.HasPrefix(command, repairRun) { // the place itself does a plain run
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

// plain is text that a shell takes as it is.
var plain = regexp.MustCompile(`^[\w./:@%+,=-]+$`)

// quote returns the word, quoted for a shell.
func quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Log returns a logger that completes the commands in fields named remedy.
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

// Check must be our own: that of the embedded core would have that core write
// alone.
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
