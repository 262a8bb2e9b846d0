package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The bounds of all comments together, in 1,000 words and in 1,000 sentences.
// They may only shrink.
const (
	commentPronouns  = 25.0
	commentBeginning = 3.5
)

// indented lines of a comment are code, unless they are a list's.
var indented = regexp.MustCompile("(?m)^[ \t]+[^ \t*0-9-].*$|`[^`\n]*`")

// parsed are the Go files of all modules with their comments, by path from here.
func parsed(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "testdata"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		files[path] = file
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCommentsArePlain(t *testing.T) {
	var product, tests density
	for path, file := range parsed(t) {
		of := &product
		if strings.HasSuffix(path, "_test.go") {
			of = &tests
		}
		for _, group := range file.Comments {
			of.add(indented.ReplaceAllString(group.Text(), "X"))
		}
	}
	t.Logf("product, benchmarks and the tests' servers: %v; tests: %v", product, tests)
	product.merge(tests)
	product.holds(t, commentPronouns, commentBeginning)
}
