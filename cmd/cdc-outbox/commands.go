package main

import (
	"encoding/json"
	"regexp"
	"strings"
)

// ownCommand is a command of ours in a remedy.
var ownCommand = regexp.MustCompile(`\bcdc-outbox (setup|teardown|check|status|tail|run)\b( -c )?`)

// plain is what a shell takes as it is.
var plain = regexp.MustCompile(`^[\w./:@%+,=-]+$`)

// withFile has the commands in a text read the configuration file that this one was
// told to: without it they would read another, or none.
func (p *program) withFile(text string) string {
	return p.commands(text, func(s string) string { return s })
}

// withFileInJSON is withFile for a text that is JSON.
func (p *program) withFileInJSON(text string) string {
	return p.commands(text, func(s string) string {
		quoted, err := json.Marshal(s)
		if err != nil {
			return s // a string always can be
		}
		return string(quoted[1 : len(quoted)-1])
	})
}

func (p *program) commands(text string, encode func(string) string) string {
	if p.file == "" {
		return text
	}
	name := p.file
	if !plain.MatchString(name) {
		name = "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return ownCommand.ReplaceAllStringFunc(text, func(command string) string {
		if strings.HasSuffix(command, " -c ") {
			return command
		}
		return command + encode(" -c "+name)
	})
}
