package modules

import (
	"slices"
	"strings"
	"testing"
)

// A replacement in a go.mod counts for nobody else, and go install refuses a
// module with one. So what is required here must be what is released.
func TestModulesRequireEachOtherAsReleased(t *testing.T) {
	dirs, version := workspace(t)
	if len(dirs) < 5 || version == "" {
		t.Fatalf("%d modules, version %q", len(dirs), version)
	}
	for path, dir := range dirs {
		file := gomod(t, dir)
		if want := strings.TrimPrefix(strings.TrimPrefix(dir, repository), "/"); strings.TrimPrefix(path, root) != prefixed(want) {
			t.Errorf("module %s is in %s", path, dir)
		}
		if len(file.Replace) > 0 || len(file.Exclude) > 0 {
			t.Errorf("%s replaces or excludes modules", path)
		}
		for _, r := range file.Require {
			if _, own := dirs[r.Mod.Path]; own && r.Mod.Version != version {
				t.Errorf("%s requires %s, not %s: run make tidy", path, r.Mod, version)
			}
		}
	}
}

func prefixed(dir string) string {
	if dir == "" {
		return ""
	}
	return "/" + dir
}

// What is only for tests stays out of the libraries' modules, of which users get
// all that go.mod lists; goleak is one small module without any of its own.
func TestLibrariesRequireNothingOfTheRest(t *testing.T) {
	dirs, _ := workspace(t)
	rest := []string{root, "github.com/testcontainers/", "github.com/twmb/franz-go/pkg/kfake", "github.com/fergusstrange/", "github.com/lib/pq"}
	for path, dir := range dirs {
		if path == root || strings.Contains(path, "/cmd/") {
			continue
		}
		for _, r := range gomod(t, dir).Require {
			if slices.ContainsFunc(rest, func(other string) bool {
				return r.Mod.Path == other || strings.HasSuffix(other, "/") && strings.HasPrefix(r.Mod.Path, other)
			}) {
				t.Errorf("%s requires %s", path, r.Mod)
			}
		}
	}
}
