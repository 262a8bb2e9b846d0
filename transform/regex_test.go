package transform

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// The topics are what java.util.regex gives: matches(), then replaceFirst().
func TestTopicsAsJava(t *testing.T) {
	for _, tt := range []struct{ regex, topic, value, want string }{
		{`(?<routedByValue>.*)`, `outbox.event.${routedByValue}`, "Order", "outbox.event.Order"},
		{`(?<routedByValue>.*)`, `outbox.event.${routedByValue}`, "", "outbox.event."},
		{`(?P<v>.*)`, `${v}`, "Order", "Order"},
		{`(.*)-(.*)`, `$2.$1`, "a-b-c", "c.a-b"},
		{`a|ab`, `x`, "ab", "xb"},
		{`(.*?)`, `$1.t`, "order", ".torder"},
		{`(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)`, `$11-$12-$1`, "abcdefghijk", "k-a2-a"},
		{`(a)|(b)`, `x$1$2`, "b", "xb"},
		{`^([a-z]+\.)*([^.]+)$`, `$2`, "a.bc.Order", "Order"},
		{`(?i)ORDER(s?)`, `o$1`, "Orders", "os"},
		{`(?i:o)rder`, `x`, "Order", "x"},
		{`(?i:o)rder`, `x`, "ORDER", "ORDER"},
		{`[\w-]+[^\d\]][$.^]`, `x`, "ab-1_^", "x"},
		{`]}+`, `x`, "]}}", "x"},
		{`a{2}?b+?c{1,}`, `x`, "aabc", "x"},
		{`x`, `\y`, "x", "y"},
		{`x\.(?:a|b)`, `t`, "x.b", "t"},
		{`.+`, `x`, "größe茶", "x"},
		{`[^.]+`, `x`, "a\nb", "x"},
		{`a.b`, `x`, "a\u2028b", "a\u2028b"},
		{`a.b`, `x`, "a\rb", "a\rb"},
		{`a.b`, `x`, "a\vb", "x"},
		{`a\s[\s-]*`, `x`, "a\v\v-", "x"},
		{`[\s-c]+`, `x`, "a", "a"},
		{`[\S]+[^\S]a\S`, `x`, "ä\vaü", "x"},
		{`(?i)orders`, `x`, "orderſ", "orderſ"},
		{`(?i)order.`, `x`, "ORDERſ", "x"},
		{`(?i)(.)[^a-z]`, `$1`, "ſ\u212A", "ſ"},
		{`(?i)\w`, `x`, "\u212A", "\u212A"},
		{`...`, `x`, "a\xf0\x9f", "a\xf0\x9f"},
	} {
		topics, err := newTopics(RouteOptions{Regex: tt.regex, Topic: tt.topic})
		if err != nil {
			t.Errorf("newTopics(%s, %s): %v", tt.regex, tt.topic, err)
			continue
		}
		if got := topics.route(tt.value); got != tt.want {
			t.Errorf("%s → %s of %q = %q, want %q", tt.regex, tt.topic, tt.value, got, tt.want)
		}
	}
}

func TestRegexRefused(t *testing.T) {
	for _, tt := range []struct{ regex, want string }{
		{`a(?=b)`, "lookahead (?= at offset 1"},
		{`a(?!b)`, "negative lookahead (?! at offset 1"},
		{`(?<=a)b`, "lookbehind (?<= at offset 0"},
		{`(?<!a)b`, "negative lookbehind (?<! at offset 0"},
		{`(?>a+)b`, "atomic group (?> at offset 0"},
		{`(?s).*`, "group or flag (?s at offset 0"},
		{`(?x)a b`, "group or flag (?x at offset 0"},
		{`(?U)\w`, "group or flag (?U at offset 0"},
		{`a(?i)*`, "group or flag (?i at offset 1"},
		{`(a)\1`, `escape \1 at offset 3`},
		{`(?<x>a)\k<x>`, `back-reference \k at offset 7`},
		{`\Qa.b\E`, `quotation \Q at offset 0`},
		{`\p{Lower}+`, `property \p at offset 0`},
		{`a\b`, `escape \b at offset 1`},
		{`\u0061`, `escape \u at offset 0`},
		{`a++`, "possessive quantifier ++ at offset 1"},
		{`é*+`, "possessive quantifier *+ at offset 2"},
		{`a{1,2}+`, "possessive quantifier {1,2}+ at offset 1"},
		{`[a-z&&[^b]]`, "in it, [a-z&&[^b]] at offset 0"},
		{`[a[b]]`, "class"},
		{`[]a]+`, "class"},
		{`[\R]`, "class"},
		{`[a`, "class"},
		{`a\`, `escape \ at offset 1`},
		{`a{`, "repetition { at offset 1"},
		{`a{01}`, "repetition {01} at offset 1"},
		{`(?i)größe`, "beyond ASCII"},
		{`(a*)+`, "(a*)+"},
		{`(?:|b){2}`, "may be empty"},
		{`(a`, "missing closing )"},
		{`(a$|b)c`, "$ before the end"},
		{`(?:a$)*`, "$ before the end"},
		{`a**`, "invalid nested repetition operator: `**`"},
	} {
		_, err := newTopics(RouteOptions{Regex: tt.regex, Topic: "t"})
		if err == nil || !strings.Contains(err.Error(), tt.want) || failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
			t.Errorf("newTopics(%s) = %v (remedy %q), want a Config error with %q", tt.regex, err, failure.RemedyOf(err), tt.want)
		}
	}
}

func TestReplacementRefused(t *testing.T) {
	for _, tt := range []struct{ topic, want string }{
		{`t.$2`, "no group 2 (it has ${v}) at offset 2"},
		{`t.${w}`, `no group named "w" (it has ${v}) at offset 2`},
		{`t.${v`, "${ without } at offset 2"},
		{`t.$`, "$ that begins no group reference at offset 2"},
		{`t.$x`, "$ that begins no group reference at offset 2"},
		{`t\`, "single backslash"},
		{`t $1`, "no topic name may contain ' '"},
		{`__t`, "two underscores"},
	} {
		_, err := newTopics(RouteOptions{Regex: "(?<v>.*)", Topic: tt.topic})
		if err == nil || !strings.Contains(err.Error(), tt.want) || failure.ClassOf(err) != failure.Config {
			t.Errorf("newTopics(topic %s) = %v, want a Config error with %q", tt.topic, err, tt.want)
		}
	}
}

func TestLegalTopic(t *testing.T) {
	for _, tt := range []struct {
		name  string
		legal bool
	}{
		{"a", true},
		{"Order_1.x-y", true},
		{"_a", true},
		{strings.Repeat("a", 249), true},
		{strings.Repeat("a", 250), false},
		{"", false},
		{".", false},
		{"..", false},
		{"...", true},
		{"__a", false},
		{"a b", false},
		{"ä", false},
		{"a\xff", false},
	} {
		if err := (&topics{}).legal(tt.name); (err == nil) != tt.legal {
			t.Errorf("legalTopic(%q) = %v, want legal %v", tt.name, err, tt.legal)
		}
	}
}

func TestTopicCacheIsBounded(t *testing.T) {
	topics := must.Get(newTopics(DefaultRoute()))(t)
	value := []byte("v000000")
	for i := range 3 * maxCachedTopics {
		for j := len(value) - 1; j > 0; j-- {
			value[j] = byte('0' + i%10)
			i /= 10
		}
		name, err := topics.lookup(value)
		if want := "outbox.event." + string(value); name != want || err != nil {
			t.Fatalf("lookup(%s) = %q, %v", value, name, err)
		}
	}
	if _, err := topics.lookup([]byte(strings.Repeat("x", setting.LongestTopic+1))); err == nil {
		t.Error("an overlong topic is legal")
	}
	if n := len(topics.cache); n > maxCachedTopics {
		t.Errorf("the cache holds %d values, more than %d", n, maxCachedTopics)
	}
}

func FuzzTopics(f *testing.F) {
	f.Add(`(?<routedByValue>.*)`, `outbox.event.${routedByValue}`, "order")
	f.Add(`[^\]]a{2,3}?|(?:\w)`, `$1\$`, "aA")
	f.Add(`(?i)(?i:[a-z&&b])(?<=x)\k<n>`, `${`, "x")
	f.Fuzz(func(t *testing.T, regex, replacement, value string) {
		topics, err := newTopics(RouteOptions{Regex: regex, Topic: replacement})
		if err != nil {
			return
		}
		first, firstErr := topics.lookup([]byte(value))
		again, againErr := topics.lookup([]byte(value))
		if first != again || (firstErr == nil) != (againErr == nil) {
			t.Errorf("first %q (%v), then %q (%v)", first, firstErr, again, againErr)
		}
		if !topics.regex.whole.MatchString(topics.regex.legible(value)) && first != value {
			t.Errorf("no match, but the topic is %q, not %q", first, value)
		}
	})
}
