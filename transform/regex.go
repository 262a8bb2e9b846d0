package transform

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"
)

// translateRegex rewrites a java.util.regex pattern for Go's regexp (RE2). What
// both write alike stays; what only Java writes differently is rewritten; what
// RE2 cannot express, or reads in another sense than Java without an error, is
// an error that names the construct and its offset in bytes. Syntax errors are
// left to the compiler.
func translateRegex(pattern string) (string, error) {
	t := regexTranslator{src: pattern}
	for t.pos < len(t.src) {
		if err := t.next(); err != nil {
			return "", err
		}
	}
	return t.out.String(), nil
}

type regexTranslator struct {
	src string
	pos int
	out strings.Builder
}

// refuse is the error for the construct of n bytes at the current position.
func (t *regexTranslator) refuse(n int, what string) error {
	end := min(t.pos+n, len(t.src))
	return fmt.Errorf("%s %s at offset %d cannot be expressed in RE2", what, t.src[t.pos:end], t.pos)
}

// keep copies n bytes.
func (t *regexTranslator) keep(n int) {
	n = min(n, len(t.src)-t.pos)
	t.out.WriteString(t.src[t.pos : t.pos+n])
	t.pos += n
}

func (t *regexTranslator) next() error {
	switch t.src[t.pos] {
	case '\\':
		return t.escape(false)
	case '(':
		return t.group()
	case '[':
		return t.class()
	case '*', '+', '?':
		return t.quantifier(1)
	case '{':
		n := repetition(t.src[t.pos:])
		if n == 0 {
			return fmt.Errorf("{ at offset %d begins no repetition; write \\{ for the character", t.pos)
		}
		return t.quantifier(n)
	}
	t.keep(1)
	return nil
}

// quantifier copies a quantifier of n bytes and the ? of a reluctant one.
func (t *regexTranslator) quantifier(n int) error {
	switch suffix := t.src[t.pos+n:]; {
	case strings.HasPrefix(suffix, "+"):
		return t.refuse(n+1, "possessive quantifier")
	case strings.HasPrefix(suffix, "?"):
		n++
	}
	t.keep(n)
	return nil
}

// repetition is the length of the {n}, {n,} or {n,m} that s starts with.
func repetition(s string) int {
	end := strings.IndexByte(s, '}')
	if end < 0 {
		return 0
	}
	low, high, _ := strings.Cut(s[1:end], ",")
	if number([]byte(low)) < 0 || high != "" && number([]byte(high)) < 0 {
		return 0
	}
	return end + 1
}

// group handles what follows an opening parenthesis.
func (t *regexTranslator) group() error {
	rest := t.src[t.pos:]
	for _, refused := range []struct{ prefix, what string }{
		{"(?=", "lookahead"},
		{"(?!", "negative lookahead"},
		{"(?<=", "lookbehind"},
		{"(?<!", "negative lookbehind"},
		{"(?>", "atomic group"},
	} {
		if strings.HasPrefix(rest, refused.prefix) {
			return t.refuse(len(refused.prefix), refused.what)
		}
	}
	if !strings.HasPrefix(rest, "(?") || strings.HasPrefix(rest, "(?<") || strings.HasPrefix(rest, "(?P<") {
		t.keep(1)
		return nil
	}
	// Of the flags, i, m and s mean the same to both; U does not.
	flags := rest[2 : 2+strings.IndexAny(rest[2:]+":", ":)")]
	if i := strings.IndexAny(flags, "dxuU"); i >= 0 {
		return t.refuse(2+len(flags), "flag "+flags[i:i+1]+" of")
	}
	t.keep(2 + len(flags))
	return nil
}

// class copies a bracketed class. Java's unions and intersections of classes
// would be plain characters to RE2.
func (t *regexTranslator) class() error {
	start := t.pos
	t.keep(1)
	if strings.HasPrefix(t.src[t.pos:], "^") {
		t.keep(1)
	}
	for first := true; t.pos < len(t.src); first = false {
		rest := t.src[t.pos:]
		switch {
		case rest[0] == ']' && !first:
			t.keep(1)
			return nil
		case rest[0] == '[':
			return t.refuse(1, "class within a class")
		case strings.HasPrefix(rest, "&&"):
			return t.refuse(2, "class intersection")
		case rest[0] == '\\':
			if err := t.escape(true); err != nil {
				return err
			}
		default:
			t.keep(1)
		}
	}
	return fmt.Errorf("[ at offset %d has no ]", start)
}

// escape handles a backslash and what it belongs to.
func (t *regexTranslator) escape(inClass bool) error {
	rest := t.src[t.pos:]
	if len(rest) < 2 {
		return fmt.Errorf("\\ at offset %d escapes nothing", t.pos)
	}
	switch c := rest[1]; {
	case '1' <= c && c <= '9' && !inClass:
		return t.refuse(2, "back-reference")
	case c == 'k':
		return t.refuse(1+len(upTo(rest[1:], '>')), "back-reference")
	case c == 'Q':
		t.quote()
		return nil
	case c == 'u':
		return t.unicode()
	case c == 'p' || c == 'P':
		t.property(inClass)
		return nil
	case strings.HasPrefix(rest, `\x{`):
		t.keep(len(upTo(rest, '}')))
		return nil
	case strings.IndexByte("0ceGhHNRvVXZ", c) >= 0:
		return t.refuse(2, "escape")
	case c >= utf8.RuneSelf:
		t.pos++ // an escaped character that needs none
		return nil
	}
	t.keep(2)
	return nil
}

// quote rewrites \Q…\E, which RE2 does not know within classes.
func (t *regexTranslator) quote() {
	text, _, _ := strings.Cut(t.src[t.pos+2:], `\E`)
	for _, c := range text {
		if c < utf8.RuneSelf && !isWord(byte(c)) {
			t.out.WriteByte('\\')
		}
		t.out.WriteRune(c)
	}
	t.pos = min(t.pos+len(`\Q`)+len(text)+len(`\E`), len(t.src))
}

// unicode rewrites \u20AC as \x{20AC}.
func (t *regexTranslator) unicode() error {
	rest := t.src[t.pos:]
	if len(rest) < 6 {
		return fmt.Errorf("\\u at offset %d needs four hexadecimal digits", t.pos)
	}
	code, err := strconv.ParseUint(rest[2:6], 16, 16)
	if err != nil {
		return fmt.Errorf("\\u at offset %d needs four hexadecimal digits", t.pos)
	}
	if 0xD800 <= code && code <= 0xDFFF {
		return t.refuse(6, "surrogate")
	}
	t.out.WriteString(`\x{` + rest[2:6] + `}`)
	t.pos += 6
	return nil
}

// posixClasses are Java's \p{…} names of ASCII classes, which RE2 writes in
// brackets.
var posixClasses = map[string]bool{
	"Lower": true, "Upper": true, "ASCII": true, "Alpha": true, "Digit": true, "Alnum": true, "Punct": true,
	"Graph": true, "Print": true, "Blank": true, "Cntrl": true, "XDigit": true, "Space": true,
}

// property rewrites \p{Alpha} as [:alpha:] and leaves the properties of Unicode
// alone.
func (t *regexTranslator) property(inClass bool) {
	rest := t.src[t.pos:]
	if !strings.HasPrefix(rest[2:], "{") {
		t.keep(2)
		return
	}
	whole := upTo(rest, '}')
	name := strings.TrimSuffix(whole[3:], "}")
	if !posixClasses[name] {
		t.keep(len(whole))
		return
	}
	negation := ""
	if rest[1] == 'P' {
		negation = "^"
	}
	class := "[:" + negation + strings.ToLower(name) + ":]"
	if !inClass {
		class = "[" + class + "]"
	}
	t.out.WriteString(class)
	t.pos += len(whole)
}

// upTo returns s up to and including the first c, or all of it.
func upTo(s string, c byte) string {
	if i := strings.IndexByte(s, c); i >= 0 {
		return s[:i+1]
	}
	return s
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || isDigit(c) || c == '_'
}

// syntaxProblem words the compiler's error, with the offset of what it is about
// where that stands in the pattern as it was written.
func syntaxProblem(pattern string, err error) error {
	problem, ok := errors.AsType[*syntax.Error](err)
	if !ok {
		return err
	}
	if i := strings.Index(pattern, problem.Expr); problem.Expr != "" && i >= 0 {
		return fmt.Errorf("%s: %s at offset %d", problem.Code, problem.Expr, i)
	}
	return fmt.Errorf("%s: %s", problem.Code, problem.Expr)
}
