// Package pgsql writes names and strings into SQL where no parameter can stand, and
// tells errors of PostgreSQL apart by their SQLSTATE (pgerrcode names them): messages
// are in the server's language. Both libraries and the connector use it, so it
// imports no driver.
package pgsql

import (
	"strconv"
	"strings"
)

// MaxName is how many bytes a name may have: NAMEDATALEN-1. PostgreSQL cuts off
// the rest.
const MaxName = 63

// Name returns a name as a quoted identifier, in its own case.
func Name(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Literal returns text as a string constant, under standard_conforming_strings,
// which our sessions have.
func Literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// Dollars returns text as a string constant between dollar signs, with a tag
// that begins so: the body of a DO block or a function. A name in the text may
// have the tag in it.
func Dollars(tag, text string) string {
	quote := "$" + tag + "$"
	for n := 1; strings.Contains(text, quote); n++ {
		quote = "$" + tag + strconv.Itoa(n) + "$"
	}
	return quote + text + quote
}
