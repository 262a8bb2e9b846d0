// Package docs has no code: its tests hold the documents to the files and
// commands they name.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents are everything a reader may open, by path from here.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, folder := range []string{".", "runbook", "how-to", "concepts", "internals", "..", "../.github"} {
		paths, err := filepath.Glob(folder + "/*.md")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			texts[path] = read(t, path)
		}
	}
	return texts
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#: ]*)(?:#([^) ]+))?\)`)
	found := 0
	for path, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			found++
			target, anchor := filepath.Join(filepath.Dir(path), m[1]), m[2]
			if m[1] == "" {
				target = path
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", path, err)
			} else if anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s: %s has no section #%s", path, target, anchor)
			}
		}
	}
	if found < 200 {
		t.Errorf("only %d links found", found)
	}
}

// A remedy, a comment or an alert naming a page names one that is there.
func TestPagesNamedInCodeExist(t *testing.T) {
	page := regexp.MustCompile(`\bdocs/[\w/-]+\.md`)
	found := 0
	for path, text := range sources(t) {
		for _, name := range page.FindAllString(text, -1) {
			found++
			if _, err := os.Stat(filepath.Join("..", name)); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d names found", found)
	}
}

// anchors are the names by which GitHub finds a document's sections.
func anchors(text string) map[string]bool {
	heading := regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		all[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return all
}

func TestMakeTargetsAndBenchmarksExist(t *testing.T) {
	makefile := read(t, "../Makefile")
	target := regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z0-9-]*)")
	program := regexp.MustCompile(`go (?:run|test) \./([\w/]+)`)
	found := 0
	for path, text := range documents(t) {
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			found++
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: make has no target %s", path, m[1])
			}
		}
		for _, m := range program.FindAllStringSubmatch(text, -1) {
			found++
			if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d commands found", found)
	}
}
