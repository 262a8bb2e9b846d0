// Package docblocks holds the code in documents to code that runs: what a reader
// copies was compiled and tested.
//
// Non-goals: output, links, prose.
package docblocks

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Sources are what a document may quote, by the language of the blocks: "go"
// and so on. Blocks in other languages are not looked at.
type Sources map[string]string

var (
	block  = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")
	indent = regexp.MustCompile(`(?m)^[ \t]+`)
)

// Check reports each block of the document that does not occur in the source of
// the language, and a document with fewer than least of them. Indentation does
// not count.
func Check(t testing.TB, document string, least int, sources Sources) {
	t.Helper()
	found := 0
	for _, b := range block.FindAllStringSubmatch(Read(t, document), -1) {
		source, ok := sources[b[1]]
		if !ok {
			continue
		}
		found++
		if !strings.Contains(indent.ReplaceAllString(source, ""), indent.ReplaceAllString(b[2], "")) {
			t.Errorf("%s: this is in no source:\n%s", document, b[2])
		}
	}
	if found < least {
		t.Errorf("%s: %d blocks of code: the document is not what it was", document, found)
	}
}

// Section returns the blocks of a document's section by language, those of one
// language in turn. The section ends at the next heading of the level.
func Section(t testing.TB, document, heading string) Sources {
	t.Helper()
	_, section, found := strings.Cut(Read(t, document), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", document, heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	section, _, _ = strings.Cut(section, "\n"+level+" ")
	blocks := Sources{}
	for _, b := range block.FindAllStringSubmatch(section, -1) {
		blocks[b[1]] += b[2]
	}
	return blocks
}

// Read returns the files' texts, one after the other.
func Read(t testing.TB, paths ...string) string {
	t.Helper()
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
