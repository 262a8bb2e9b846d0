package admin

import (
	"fmt"
	"io"
	"strings"
)

// lines is a report for a person.
type lines struct{ strings.Builder }

func (l *lines) printf(format string, args ...any) { fmt.Fprintf(l, format, args...) }

// line prints a value behind its name.
func (l *lines) line(name, format string, args ...any) {
	l.printf("%-12s %s\n", name, fmt.Sprintf(format, args...))
}

// trouble prints an error and the remedy, if any.
func (l *lines) trouble(name string, p *Problem) {
	if p == nil {
		return
	}
	l.line(name, "%s", p.Error)
	l.remedy(p.Remedy)
}

func (l *lines) remedy(remedy string) {
	if remedy != "" {
		l.line("", "-> %s", remedy)
	}
}

// server prints a server's version.
func (l *lines) server(version int) {
	l.line("server", "PostgreSQL %d.%d", version/10000, version%10000)
}

// next prints steps that are still to be taken, in order.
func (l *lines) next(steps []string) {
	for i, step := range steps {
		l.line("next", "%d. %s", i+1, step)
	}
}

// to writes all at once.
func (l *lines) to(w io.Writer) error {
	_, err := io.WriteString(w, l.String())
	return err
}
