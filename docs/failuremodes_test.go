package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Numbers in code and tests are in the documents, and the proofs in
// failure-modes.md are tests.
func TestNumbersLeadSomewhere(t *testing.T) {
	modes := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([\d, ]+) \|`).FindAllStringSubmatch(read(t, "failure-modes.md"), -1) {
		for n := range strings.SplitSeq(m[1], ", ") {
			if modes[n] {
				t.Errorf("failure mode %s is there twice", n)
			}
			modes[n] = true
		}
	}
	for n := 1; n <= len(modes); n++ {
		if !modes[strconv.Itoa(n)] {
			t.Errorf("failure mode %d is missing: the numbers have a gap", n)
		}
	}
	_, section, _ := strings.Cut(read(t, "internals/DESIGN.md"), "\n## Invariants that have caused bugs")
	section, _, _ = strings.Cut(section, "\n## ")
	invariants := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(section, -1) {
		invariants[m[1]] = true
	}
	const numbers = `(\d+(?:(?:, | and | to )\d+)*)`
	var (
		number    = regexp.MustCompile(`\d+`)
		mode      = regexp.MustCompile(`(?:[Ff]ailure modes? |\(mode |TestMode)` + numbers)
		invariant = regexp.MustCompile(`DESIGN\.md, invariants? ` + numbers)
		lineBreak = regexp.MustCompile(`\s*\n\s*(?:// |# )?`)
		test      = regexp.MustCompile(`func (Test\w+)\(`)
	)
	tests, named := map[string]bool{}, 0
	for path, text := range sources(t) {
		for _, m := range test.FindAllStringSubmatch(text, -1) {
			tests[m[1]] = true
		}
		text = lineBreak.ReplaceAllString(text, " ")
		for kind, known := range map[*regexp.Regexp]map[string]bool{mode: modes, invariant: invariants} {
			for _, m := range kind.FindAllStringSubmatch(text, -1) {
				for _, n := range number.FindAllString(m[1], -1) {
					if named++; !known[n] {
						t.Errorf("%s: %q: no document has number %s", path, m[0], n)
					}
				}
			}
		}
	}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(read(t, "failure-modes.md"), -1) {
		if named++; !tests[m[1]] {
			t.Errorf("failure-modes.md: there is no test %s", m[1])
		}
	}
	if len(invariants) < 10 || named < 120 {
		t.Errorf("only %d invariants and %d references found", len(invariants), named)
	}
}

// sources are the texts of the repository's code and test data.
func sources(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		}
		switch filepath.Ext(path) {
		case ".go", ".txt", ".yaml", ".yml", ".sql", ".sh":
			texts[path] = read(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
