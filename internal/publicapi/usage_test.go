package publicapi

import (
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// usage is what tests and examples select of the libraries' packages: pkg.Name
// directly, and for methods and fields all names that are selected, or are keys of
// a literal, beside an import of pkg.
type usage struct {
	direct map[string]map[string]bool
	beside map[string]map[string]bool
}

func (u usage) has(pkg, symbol string) bool {
	_, member, ok := strings.Cut(symbol, ".")
	if !ok {
		return u.direct[pkg][symbol]
	}
	return implied[member] || u.beside[pkg][member]
}

// suite calls the methods of the stores for their tests.
const suite = "idempotency/storetest"

// usesOf looks into all users.
func usesOf(t *testing.T) usage {
	t.Helper()
	u := usage{direct: map[string]map[string]bool{}, beside: map[string]map[string]bool{}}
	imports := map[string]map[string]bool{} // by directory
	selects := map[string]map[string]bool{}
	for _, f := range parse(t, ".") {
		if !uses(f) {
			continue
		}
		dir := path.Dir(f.path)
		local := imported(f.tree)
		for _, pkg := range local {
			note(imports, dir, pkg)
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok {
					note(selects, dir, key.Name)
				}
			case *ast.SelectorExpr:
				note(selects, dir, n.Sel.Name)
				if x, ok := n.X.(*ast.Ident); ok && local[x.Name] != "" {
					note(u.direct, local[x.Name], n.Sel.Name)
				}
			}
			return true
		})
	}
	for dir, packages := range imports {
		for pkg := range packages {
			for name := range selects[dir] {
				note(u.beside, pkg, name)
			}
			if packages[suite] {
				for name := range selects[suite] {
					note(u.beside, pkg, name)
				}
			}
		}
	}
	return u
}

func note(in map[string]map[string]bool, key, value string) {
	if in[key] == nil {
		in[key] = map[string]bool{}
	}
	in[key][value] = true
}

// uses tells whether a file shows how the libraries are used: an external test,
// an example program, or what tests are made of.
func uses(f file) bool {
	testing := slices.ContainsFunc(f.tree.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` })
	switch {
	case strings.HasSuffix(f.path, "_test.go"):
		return strings.HasSuffix(f.tree.Name.Name, "_test") || !slices.Contains(libraries, strings.Split(f.path, "/")[0])
	default:
		return testing || strings.HasPrefix(f.path, "examples/")
	}
}

// imported returns the module's packages that a file imports, from the root, by
// their names in the file.
func imported(f *ast.File) map[string]string {
	all := map[string]string{}
	for _, i := range f.Imports {
		name, _ := strconv.Unquote(i.Path.Value) // the parser saw to it
		pkg, ours := strings.CutPrefix(name, module)
		switch {
		case !ours:
		case i.Name != nil:
			all[i.Name.Name] = pkg
		default:
			all[path.Base(pkg)] = pkg
		}
	}
	return all
}
