package publicapi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/cdc-outbox/cdc-outbox/"
)

// libraries are the public packages' trees.
var libraries = []string{"outbox", "idempotency"}

// implied are methods that are called for their callers by fmt and errors.
var implied = map[string]bool{"String": true, "Error": true, "Unwrap": true}

// TestEverySymbolIsUsedFromOutside finds each exported constant, variable, type,
// function, method and field in an external test, in an example program or in a
// package for tests. It goes by names: a method or field counts where a package
// that imports its own selects the name, or gives it a value in a literal. A type
// counts, too, if it is part of a symbol that does.
func TestEverySymbolIsUsedFromOutside(t *testing.T) {
	uses := usesOf(t)
	found := 0
	for _, tree := range libraries {
		for pkg, symbols := range symbolsOf(t, tree) {
			used := map[string]bool{}
			for name := range symbols {
				if uses.has(pkg, name) {
					symbols.reach(name, used)
				}
			}
			for name := range symbols {
				if found++; !used[name] {
					t.Errorf("%s.%s is in no example and in no test from outside", pkg, name)
				}
			}
		}
	}
	if found < 300 {
		t.Errorf("only %d symbols: this test looks in the wrong places", found)
	}
}

type file struct {
	path string // from the root, with slashes
	tree *ast.File
}

// parse returns the Go files of a tree.
func parse(t *testing.T, tree string) (files []file) {
	t.Helper()
	set := token.NewFileSet()
	err := filepath.WalkDir(filepath.Join(root, tree), func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != path.Base(root) {
			return fs.SkipDir // .git and the like, in which files come and go
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") {
			return err
		}
		parsed, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		files = append(files, file{path: filepath.ToSlash(relative), tree: parsed})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// symbols are what a package exports, methods and fields as Type.Name, each with
// the declaration, in which types stand.
type symbols map[string]ast.Node

// symbolsOf returns the symbols of a tree's packages.
func symbolsOf(t *testing.T, tree string) map[string]symbols {
	t.Helper()
	packages := map[string]symbols{}
	for _, f := range parse(t, tree) {
		if strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		pkg := path.Dir(f.path)
		if packages[pkg] == nil {
			packages[pkg] = symbols{}
		}
		for _, d := range f.tree.Decls {
			packages[pkg].add(d)
		}
	}
	return packages
}

func (s symbols) add(d ast.Decl) {
	note := func(qualifier string, id *ast.Ident, in ast.Node) {
		if id.IsExported() {
			s[qualifier+id.Name] = in
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if receiver := receiverOf(d); receiver == "" || ast.IsExported(receiver) {
			note(strings.TrimPrefix(receiver+".", "."), d.Name, &ast.FuncDecl{Name: d.Name, Recv: d.Recv, Type: d.Type})
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				note("", spec.Name, spec)
				if fields, ok := spec.Type.(*ast.StructType); ok && spec.Name.IsExported() {
					for _, field := range fields.Fields.List {
						for _, name := range field.Names {
							note(spec.Name.Name+".", name, field)
						}
					}
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					note("", name, spec)
				}
			}
		}
	}
}

// reach adds the symbol, and the types that it is made of, to used.
func (s symbols) reach(name string, used map[string]bool) {
	if used[name] {
		return
	}
	used[name] = true
	ast.Inspect(s[name], func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if _, isType := s[id.Name].(*ast.TypeSpec); isType {
				s.reach(id.Name, used)
			}
		}
		return true
	})
}

// receiverOf returns the type that a method is of, "" for a function.
func receiverOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	expr := d.Recv.List[0].Type
	if pointer, ok := expr.(*ast.StarExpr); ok {
		expr = pointer.X
	}
	if generic, ok := expr.(*ast.IndexExpr); ok {
		expr = generic.X
	}
	return expr.(*ast.Ident).Name
}
