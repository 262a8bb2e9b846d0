package idempotency_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/docblocks"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Packages of users, and packages for authors of stores, loops and tools only.
var (
	everybody = []string{".", "consumer"}
	stores    = []string{"redis", "postgres", "dynamodb"}
	others    = []string{"memory", "guard", "metrics", "tracing", "deadletter", "storage", "storetest", "../outbox", "../outbox/tracing"}
)

// mostNames bounds the exported names met by a service with a single store: an
// enumerated type counts once; methods and fields do not count.
const mostNames = 40

// TestNames keeps the list of all exported names: each is another to learn.
func TestNames(t *testing.T) {
	const golden = "testdata/names.txt"
	var list strings.Builder
	count := map[string]int{}
	for _, dir := range slices.Concat(everybody, stores, others) {
		names := exported(t, "../../idempotency/"+dir)
		count[dir] = len(names)
		fmt.Fprintf(&list, "%s: %d\n", dir, len(names))
		for _, name := range slices.Sorted(maps.Keys(names)) {
			fmt.Fprintf(&list, "\t%s\n", strings.TrimSpace(name+" "+strings.Join(names[name], " ")))
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(list.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if docblocks.Read(t, golden) != list.String() {
		t.Errorf("the exported names are others than those in %s; go test -update writes it anew:\n%s", golden, &list)
	}
	for _, store := range stores {
		met := count[store]
		for _, dir := range everybody {
			met += count[dir]
		}
		if met > mostNames {
			t.Errorf("a service with %s meets %d names, more than %d", store, met, mostNames)
		}
	}
}

// exported returns a package's exported names, with the values of enumerated
// types.
func exported(t *testing.T, dir string) map[string][]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+e.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.IsExported() {
					names[d.Name.Name] = nil
				}
			case *ast.GenDecl:
				addSpecs(names, d)
			}
		}
	}
	return names
}

func addSpecs(names map[string][]string, d *ast.GenDecl) {
	enumerated := ""
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && names[s.Name.Name] == nil {
				names[s.Name.Name] = nil
			}
		case *ast.ValueSpec:
			if typ, ok := s.Type.(*ast.Ident); ok && d.Tok == token.CONST && typ.IsExported() {
				enumerated = typ.Name
			}
			for _, name := range s.Names {
				switch {
				case !name.IsExported():
				case enumerated != "":
					names[enumerated] = append(names[enumerated], name.Name)
				default:
					names[name.Name] = nil
				}
			}
		}
	}
}
