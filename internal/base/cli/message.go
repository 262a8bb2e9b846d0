package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Message tells a person about the error ending the program: its cause, then
// its remedy, each on a line. complete completes the commands in both.
func Message(ctx context.Context, program string, err error, complete func(string) string) string {
	text := "error: " + indented(complete(err.Error())) + "\n"
	if cause, ok := errors.AsType[Stopped](context.Cause(ctx)); ok && errors.Is(err, context.Canceled) {
		text = fmt.Sprintf("%s: %v\n", program, cause)
	}
	if remedy := failure.RemedyOf(err); remedy != "" {
		text += "remedy: " + indented(complete(remedy)) + "\n"
	}
	return text
}

// indented returns the text with the further lines indented: a line break may
// come from a name or a value, and the text behind must not look like a line of
// ours.
func indented(text string) string {
	first, more, found := strings.Cut(text, "\n")
	if !found {
		return text
	}
	lines := strings.Split(more, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, " ") {
			lines[i] = "  " + line
		}
	}
	return first + "\n" + strings.Join(lines, "\n")
}
