package outbox_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentationIsWhatRuns finds each block of code of the documentation in
// an example that runs, or in the SQL that is tested.
func TestDocumentationIsWhatRuns(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	sources := map[string]string{
		"go":  unindented(read("example_test.go") + read("example_table_test.go") + read("tracing/tracing_test.go")),
		"sql": unindented(read("schema.sql") + strings.ReplaceAll(read("partitioned.sql"), "--   ", "")),
	}
	sources["sql"] = strings.ReplaceAll(sources["sql"], "--       ", "")
	blocks := regexp.MustCompile("(?s)```(go|sql)\n(.*?)```").FindAllStringSubmatch(read("../docs/outbox-library.md"), -1)
	if len(blocks) < 8 {
		t.Fatalf("%d blocks of code: the documentation is not what it was", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(sources[block[1]], unindented(block[2])) {
			t.Errorf("this is in no example:\n%s", block[2])
		}
	}
}

// unindented removes the space that begins lines.
func unindented(text string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(text, "")
}
