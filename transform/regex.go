package transform

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// regexToken has the same meaning in java.util.regex and Go's RE2. A regex of
// nothing else means the same to both.
var regexToken = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`[^\\()\[{*+?]`, // a character, . ^ $ |
	regexEscape,     // \. \d
	`\[\^?(?:[^\\\[\]&^]|` + regexEscape + `)(?:[^\\\[\]&]|` + regexEscape + `)*\]`, // [a-z\d_]
	`\(\?i?:`, `\(\?P?<[A-Za-z][A-Za-z0-9]*>`, `\(`, `\)`, // groups
	`(?:[*+?]|\{` + regexCount + `(?:,(?:` + regexCount + `)?)?\})[?+]?`,
}, "|") + `)`)

const (
	regexEscape = `\\(?:[!-/:-@\[-` + "`" + `{-~]|[dDwWsS])`
	regexCount  = `(?:0|[1-9][0-9]*)`
)

// regexFlag may begin a regex. Within a regex, RE2 looks past a flag when a
// quantifier follows, and Java does not.
var regexFlag = regexp.MustCompile(`^\(\?i\)`)

// refusedSyntax names the rest of Java's syntax, longer prefixes first. An error
// shows as many characters.
var refusedSyntax = []struct {
	prefix string
	show   int
	name   string
}{
	{`(?=`, 3, "lookahead"},
	{`(?!`, 3, "negative lookahead"},
	{`(?<=`, 4, "lookbehind"},
	{`(?<!`, 4, "negative lookbehind"},
	{`(?>`, 3, "atomic group"},
	{`(?`, 3, "group or flag"},
	{`[`, 20, "class without an end, or with [ & ^ ] or such an escape in it,"},
	{`\Q`, 2, "quotation"},
	{`\k`, 2, "back-reference"},
	{`\p`, 2, "property"},
	{`\P`, 2, "property"},
	{`\`, 2, "escape"},
	{`{`, 4, "repetition"},
}

// compileRegex compiles a regex that matches as java.util.regex does, for
// values that are readAlike. An error names the obstacle, and the offset in
// bytes.
func compileRegex(pattern string) (*regexp.Regexp, error) {
	flag := regexFlag.FindString(pattern)
	folds := flag != ""
	for pos := len(flag); pos < len(pattern); {
		rest := pattern[pos:]
		token := regexToken.FindString(rest)
		switch {
		case token == "", token == "(" && strings.HasPrefix(rest, "(?"):
			return nil, refusal(rest, pos)
		case len(token) > 1 && strings.IndexByte("*+?{", token[0]) >= 0 && strings.HasSuffix(token, "+"):
			return nil, fmt.Errorf("possessive quantifier %s at offset %d is not supported", token, pos)
		}
		folds = folds || token == "(?i:"
		pos += len(token)
	}
	if folds && strings.IndexFunc(pattern, func(c rune) bool { return c >= utf8.RuneSelf }) >= 0 {
		return nil, errors.New("a letter beyond ASCII beside the flag i is not supported: Java ignores the case of ASCII letters only")
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if part := repeatsNothing(tree); part != "" {
		return nil, fmt.Errorf("the repetition %s of what may be empty is not supported", part)
	}
	return regexp.Compile(pattern)
}

func refusal(rest string, pos int) error {
	for _, s := range refusedSyntax {
		if strings.HasPrefix(rest, s.prefix) {
			return fmt.Errorf("%s %.*s at offset %d is not supported", s.name, s.show, rest, pos)
		}
	}
	return fmt.Errorf("%.4s at offset %d is not supported", rest, pos)
}

// repeatsNothing returns a repeated, possibly empty part, if any: the two
// engines may end the repetition at different places, with different groups.
func repeatsNothing(re *syntax.Regexp) string {
	repeats := re.Op == syntax.OpStar || re.Op == syntax.OpPlus || re.Op == syntax.OpRepeat
	if repeats {
		if empty, err := regexp.MatchString(`\A(?:`+re.Sub[0].String()+`)\z`, ""); empty || err != nil {
			return re.String()
		}
	}
	for _, sub := range re.Sub {
		if part := repeatsNothing(sub); part != "" {
			return part
		}
	}
	return ""
}

// readAlike reports whether the two read a value alike. They differ in the line
// breaks . and $ heed, in the vertical tab for \s, in the folding of ſ and the
// Kelvin sign by (?i), and in invalid UTF-8. No topic's name has such a
// character.
func readAlike(value string) bool {
	return utf8.ValidString(value) && !strings.ContainsAny(value, "\n\v\r\u0085\u2028\u2029ſ\u212A")
}
