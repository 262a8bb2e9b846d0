package docblocks

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Defaults finds the default of each field of options in the line of these, in
// the document's table of them. The default of a field Lease is the constant
// defaultLease of the package. The options are named with the directory of
// their package: {"redis.Options": "redis"}.
func Defaults(t testing.TB, document string, options map[string]string) {
	t.Helper()
	text := Read(t, document)
	set := token.NewFileSet()
	stdlib := onlyTime{importer.ForCompiler(set, "source", nil)}
	for name, dir := range options {
		_, line, found := strings.Cut(text, "\n| `"+name+"` | ")
		line, _, _ = strings.Cut(line, "\n")
		_, typeName, _ := strings.Cut(name, ".")
		defaults := defaultsOf(t, check(t, set, stdlib, dir), typeName)
		if !found || len(defaults) == 0 {
			t.Errorf("%s: a line: %t, %d defaults", name, found, len(defaults))
		}
		for field, value := range defaults {
			// Then comes the end, or the next.
			want := fmt.Sprintf("`%s` %s", field, value)
			if _, rest, said := strings.Cut(line, want); !said || strings.IndexAny(rest, ",; ") != 0 {
				t.Errorf("the line of %s does not say %s", name, want)
			}
		}
	}
}

// check returns what is known of the directory's package without those it
// imports, other than time.
func check(t testing.TB, set *token.FileSet, stdlib types.Importer, dir string) *types.Package {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	config := types.Config{IgnoreFuncBodies: true, Importer: stdlib, Error: func(error) {}}
	pkg, _ := config.Check(dir, set, files, nil) // an error, about the imports
	return pkg
}

// defaultsOf returns the defaults of a struct's fields.
func defaultsOf(t testing.TB, pkg *types.Package, typeName string) map[string]string {
	t.Helper()
	options, ok := pkg.Scope().Lookup(typeName).(*types.TypeName)
	if !ok {
		t.Fatalf("%s has no %s", pkg.Path(), typeName)
	}
	defaults := map[string]string{}
	fields, _ := options.Type().Underlying().(*types.Struct)
	for i := range fields.NumFields() {
		name := fields.Field(i).Name()
		if c, ok := pkg.Scope().Lookup("default" + name).(*types.Const); ok {
			defaults[name] = valueOf(c)
		}
	}
	return defaults
}

// valueOf returns a constant as it is to be read.
func valueOf(c *types.Const) string {
	switch {
	case c.Type().String() == "time.Duration":
		n, _ := constant.Int64Val(c.Val())
		return time.Duration(n).String()
	case c.Val().Kind() == constant.String:
		return constant.StringVal(c.Val())
	default:
		return c.Val().String()
	}
}

// onlyTime imports what constants are made of.
type onlyTime struct{ types.Importer }

func (i onlyTime) Import(path string) (*types.Package, error) {
	if path != "time" {
		return nil, errors.New("not needed for constants")
	}
	return i.Importer.Import(path)
}
