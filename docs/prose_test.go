package docs

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A page is read in one go. Pages of reference are looked up, and may be longer.
const longestPage = 1500

// reference pages are tables to look things up in.
var reference = []string{"configuration.md", "errors.md", "failure-modes.md", "metrics.md", "records.md", "glossary.md", "tables.md", "consumers.md", "debezium-options.md"}

// The bounds of all pages together. A new verb or option brings its words; else the
// bounds only shrink. The goals are 32,000 words, 50 pronouns in 1,000 words, and 15
// sentences in 1,000 that begin so.
const (
	words     = 53_700
	pronouns  = 35.0
	beginning = 6.5
)

// pages are README and all of docs, by path from here.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := documents(t)
	maps.DeleteFunc(texts, func(path, _ string) bool {
		return strings.HasPrefix(path, "..") && path != "../README.md"
	})
	return texts
}

func TestPagesAreShort(t *testing.T) {
	sum := 0
	for path, text := range pages(t) {
		n := len(strings.Fields(text))
		sum += n
		if n > longestPage && !slices.Contains(reference, path) {
			t.Errorf("%s has %d words, more than %d: split it, or say less", path, n, longestPage)
		}
	}
	if sum > words {
		t.Errorf("%d words in all, more than %d", sum, words)
	}
}

var (
	noProse  = regexp.MustCompile("(?ms)^ *```.*?^ *```|`[^`\n]*`|\\]\\([^)]*\\)")
	word     = regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)
	pronoun  = regexp.MustCompile(`(?i)^(what|who|whom|whose|which|that|one|it|its|this|these|those)$`)
	sentence = regexp.MustCompile(`(?:^|[.!?:]\s+|\n\s*[-*|]\s*|\n\d+\.\s+|\n\n\s*|\|\s*)[*"(\[]*([A-Z][a-z]*)`)
	homely   = regexp.MustCompile(`^(What|Who|One|That|Nobody|Nothing)$`)
)

// density counts the pronouns and the sentences of a text.
type density struct{ words, pronouns, sentences, begun float64 }

func (d *density) add(text string) {
	for _, w := range word.FindAllString(text, -1) {
		d.words++
		if pronoun.MatchString(w) {
			d.pronouns++
		}
	}
	for _, m := range sentence.FindAllStringSubmatch(text, -1) {
		d.sentences++
		if homely.MatchString(m[1]) {
			d.begun++
		}
	}
}

func (d *density) merge(other density) {
	d.words += other.words
	d.pronouns += other.pronouns
	d.sentences += other.sentences
	d.begun += other.begun
}

func (d density) String() string {
	return fmt.Sprintf("%.1f pronouns in 1,000 words, %.1f sentences in 1,000 that begin with What, Who, One, That, Nobody or Nothing",
		1000*d.pronouns/d.words, 1000*d.begun/d.sentences)
}

// holds reports a density beyond the bounds, both in 1,000.
func (d density) holds(t *testing.T, pronouns, beginning float64) {
	t.Helper()
	t.Log(d)
	if 1000*d.pronouns > pronouns*d.words || 1000*d.begun > beginning*d.sentences {
		t.Errorf("%v: more than %.1f or %.1f", d, pronouns, beginning)
	}
}

// Nouns are read faster than relative clauses.
func TestProseIsPlain(t *testing.T) {
	var all density
	for path := range pages(t) {
		all.add(noProse.ReplaceAllString(read(t, path), "X"))
	}
	all.holds(t, pronouns, beginning)
}

// A page no other page links to is not found.
func TestEveryPageIsLinked(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#: ]+\.md)`)
	linked := map[string]bool{"../README.md": true}
	for path, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target := strings.TrimPrefix(filepath.Join(filepath.Dir(path), m[1]), "../docs/")
			if target != path {
				linked[target] = true
			}
		}
	}
	for path := range pages(t) {
		if !linked[path] {
			t.Errorf("no page links to %s", path)
		}
	}
}
