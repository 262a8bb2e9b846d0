package docs

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/cdc-outbox/cdc-outbox/"

// laboratory matches packages for tests, benchmarks and examples: these import
// anything.
var laboratory = regexp.MustCompile(`^(internal/lab|bench|deploy|docs|e2e|examples|tests)(/|$)`)

// beside matches libraries without a floor.
var beside = regexp.MustCompile(`^(idempotency|outbox/tracing)(/|$)`)

// besideImports are what a library beside the floors may import of ours.
var besideImports = regexp.MustCompile(`^(idempotency|outbox|internal/base)(/|$)`)

// floors returns the packages in the order of the table in packages.md, from
// the top, and within a line from the left.
func floors(t *testing.T) (order []string) {
	t.Helper()
	line, name := regexp.MustCompile("(?m)^\\| (`[^|]+) \\|"), regexp.MustCompile("`([^`]+)`")
	for _, row := range line.FindAllStringSubmatch(read(t, "internals/packages.md"), -1) {
		folder := ""
		for _, m := range name.FindAllStringSubmatch(row[1], -1) {
			path := strings.Replace(m[1], "…", folder, 1)
			folder = filepath.Dir(path)
			order = append(order, path)
		}
	}
	return order
}

// productImports returns what each package, tests apart, imports of ours.
func productImports(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for path, file := range parsed(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		pkg := strings.TrimPrefix(filepath.Dir(path), "../")
		if all[pkg] == nil {
			all[pkg] = map[string]bool{}
		}
		for _, spec := range file.Imports {
			if imported, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), modulePath); ours {
				all[pkg][imported] = true
			}
		}
	}
	return all
}

// A package imports only from below, and from its right.
func TestPackagesImportFromBelow(t *testing.T) {
	order, imports := floors(t), productImports(t)
	for i, pkg := range order {
		if imports[pkg] == nil || slices.Index(order, pkg) != i {
			t.Errorf("packages.md: %s is no package, or listed twice", pkg)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		floor := slices.Index(order, pkg)
		lab := laboratory.MatchString(pkg)
		if floor < 0 && !lab && !beside.MatchString(pkg) {
			t.Errorf("packages.md has no floor for %s", pkg)
		}
		for imported := range imports[pkg] {
			below := slices.Index(order, imported)
			switch {
			case lab && (floor < 0 || laboratory.MatchString(imported)):
			case floor < 0 && besideImports.MatchString(imported):
			case floor >= 0 && floor < below:
			default:
				t.Errorf("%s imports %s, which is not below it in packages.md", pkg, imported)
			}
		}
	}
}
