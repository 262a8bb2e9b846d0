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

// javaRegex matches as java.util.regex does.
type javaRegex struct {
	whole *regexp.Regexp // the whole value
	first *regexp.Regexp // the first place
	folds bool           // the case of letters is ignored somewhere
}

// compileRegex reads Java's syntax. An error names the obstacle, and the offset in
// bytes.
func compileRegex(pattern string) (*javaRegex, error) {
	flag := regexFlag.FindString(pattern)
	folds := flag != ""
	translated := flag
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
		translated += translate(token)
		pos += len(token)
	}
	if folds && strings.IndexFunc(pattern, func(c rune) bool { return c >= utf8.RuneSelf }) >= 0 {
		return nil, errors.New("a letter beyond ASCII beside the flag i is not supported: Java ignores the case of ASCII letters only")
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if endsEarly(tree, true) {
		return nil, errors.New("a $ before the end of the regex is not supported: Java takes the place before a last line break for the end")
	}
	if part := repeatsNothing(tree); part != "" {
		return nil, fmt.Errorf("the repetition %s of what may be empty is not supported", part)
	}
	first, err := regexp.Compile(translated)
	if err != nil {
		return nil, err
	}
	whole, err := regexp.Compile(`\A(?:` + translated + `)\z`)
	if err != nil {
		return nil, err
	}
	return &javaRegex{whole, first, folds}, nil
}

// Java's . stops at more line breaks than RE2's, and \s has the vertical tab.
const (
	anyButBreak = `[^\n\r\x{85}\x{2028}\x{2029}]`
	spaces      = `\t-\r `
	noSpaces    = `\x00-\x08\x0E-\x1F!-\x{10FFFF}`
)

var classSpace = strings.NewReplacer(`\\`, `\\`, `\s-]`, spaces+`-]`, `\S-]`, noSpaces+`-]`, `\s-`, spaces+`\-`, `\S-`, noSpaces+`\-`, `\s`, spaces, `\S`, noSpaces)

// translate gives a token of Java's the same meaning in RE2.
func translate(token string) string {
	switch {
	case token == ".":
		return anyButBreak
	case token == `\s`:
		return "[" + spaces + "]"
	case token == `\S`:
		return "[" + noSpaces + "]"
	case token[0] == '[':
		return classSpace.Replace(token)
	}
	return token
}

// endsEarly reports whether a $ is not at the end of the regex. last: nothing follows
// re.
func endsEarly(re *syntax.Regexp, last bool) bool {
	for i, sub := range re.Sub {
		if endsEarly(sub, last && (re.Op == syntax.OpCapture || re.Op == syntax.OpAlternate || re.Op == syntax.OpConcat && i == len(re.Sub)-1)) {
			return true
		}
	}
	return re.Op == syntax.OpEndText && !last
}

// legible is the value for matching: ſ and the Kelvin sign, which only RE2 takes for
// ASCII letters, are replaced by letters as long.
func (r *javaRegex) legible(value string) string {
	if !r.folds || !strings.ContainsAny(value, "ſ\u212A") {
		return value
	}
	return foldless.Replace(value)
}

var foldless = strings.NewReplacer("ſ", "ƀ", "\u212A", "\u2C60")

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
