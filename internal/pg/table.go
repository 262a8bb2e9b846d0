package pg

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// Table names a table the way the catalogs do: without quotes, in the real
// case.
type Table struct {
	Schema string
	Name   string
}

// TableRemedy is the remedy for a name refused by ParseTable.
const TableRemedy = `write schema.table; double quotes keep upper case and special characters: '"My Schema"."Outbox"'`

// ParseTable reads schema.table or table by SQL's rules: an unquoted part is
// folded to lower case (ASCII only, as in PostgreSQL's scanner), a part in
// double quotes is kept, "" inside quotes is a quote. Without a schema it is
// public; search_path is not consulted.
func ParseTable(s string) (Table, error) {
	parts, err := splitIdentifiers(s)
	if err != nil {
		return Table{}, fmt.Errorf("parse table name %q: %w", s, err)
	}
	switch len(parts) {
	case 1:
		return Table{Schema: "public", Name: parts[0]}, nil
	case 2:
		return Table{Schema: parts[0], Name: parts[1]}, nil
	}
	return Table{}, fmt.Errorf("parse table name %q: more than schema and table", s)
}

// Quoted returns the name as SQL text with both parts quoted, safe in a
// statement.
func (t Table) Quoted() string {
	return pgsql.Name(t.Schema) + "." + pgsql.Name(t.Name)
}

// String returns schema.table with quotes only where ParseTable needs them.
func (t Table) String() string {
	return displayIdentifier(t.Schema) + "." + displayIdentifier(t.Name)
}

func displayIdentifier(name string) string {
	if name != "" && identifierLength(name) == len(name) && foldASCII(name) == name {
		return name
	}
	return pgsql.Name(name)
}

// SplitNames returns the parts of a list of names with commas between them. A comma in
// double quotes is part of a name.
func SplitNames(list string) iter.Seq[string] {
	quoted := false
	return strings.FieldsFuncSeq(list, func(r rune) bool {
		quoted = quoted != (r == '"') // a doubled quote changes it twice
		return r == ',' && !quoted
	})
}

// splitIdentifiers reads identifiers separated by dots until the end of s.
func splitIdentifiers(s string) ([]string, error) {
	var parts []string
	rest := strings.TrimSpace(s)
	for {
		part, after, err := nextIdentifier(rest)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)

		after = strings.TrimLeft(after, " \t\r\n")
		if after == "" {
			return parts, nil
		}
		if after[0] != '.' {
			return nil, fmt.Errorf("unexpected %q; quote a name that is not plain", after)
		}
		rest = strings.TrimLeft(after[1:], " \t\r\n")
	}
}

func nextIdentifier(s string) (name, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		name, rest, err = quotedIdentifier(s[1:])
	} else {
		n := identifierLength(s)
		name, rest = foldASCII(s[:n]), s[n:]
	}
	switch {
	case err != nil:
		return "", "", err
	case name == "" && (rest == "" || s[0] == '"'):
		return "", "", errors.New("a name is empty")
	case name == "":
		return "", "", fmt.Errorf("unexpected %q; quote a name that is not plain", rest)
	case len(name) > pgsql.MaxName:
		return "", "", fmt.Errorf("%q is longer than %d bytes", name, pgsql.MaxName)
	case strings.ContainsRune(name, 0):
		return "", "", errors.New("a name contains a zero byte")
	}
	return name, rest, nil
}

// quotedIdentifier reads up to the closing quote; s starts after the opening
// quote.
func quotedIdentifier(s string) (name, rest string, err error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '"')
		if i < 0 {
			return "", "", errors.New("a quote is not closed")
		}
		b.WriteString(s[:i])
		s = s[i+1:]
		if !strings.HasPrefix(s, `"`) {
			return b.String(), s, nil
		}
		b.WriteByte('"')
		s = s[1:]
	}
}

// identifierLength is the length of the unquoted identifier at the start of s:
// a letter, underscore or non-ASCII byte, then also digits and dollar signs
// (PostgreSQL manual, 4.1.1).
func identifierLength(s string) int {
	for i := range len(s) {
		c := s[i]
		start := c == '_' || c >= 0x80 || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !start && (i == 0 || c != '$' && (c < '0' || c > '9')) {
			return i
		}
	}
	return len(s)
}

func foldASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
