package modules

import (
	"go/version"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/docblocks"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A replacement in a go.mod counts for nobody else, and go install refuses a
// module with a replacement. So the requirements here must be the released
// versions.
func TestModulesRequireEachOtherAsReleased(t *testing.T) {
	dirs, release := workspace(t)
	if len(dirs) < 5 || release == "" {
		t.Fatalf("%d modules, version %q", len(dirs), release)
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
			if _, own := dirs[r.Mod.Path]; own && r.Mod.Version != release {
				t.Errorf("%s requires %s, not %s: run make tidy", path, r.Mod, release)
			}
		}
	}
}

// A module without a tag is unavailable, as are the modules that require it.
func TestAReleaseTagsEachModule(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "scripts/release.sh", "list")
	cmd.Dir = repository
	tags := strings.Fields(string(must.Get(cmd.Output())(t)))
	dirs, release := workspace(t)
	var want []string
	for path := range dirs {
		want = append(want, strings.TrimPrefix(strings.TrimPrefix(path, root)+"/"+release, "/"))
	}
	slices.Sort(tags)
	slices.Sort(want)
	if !slices.Equal(tags, want) {
		t.Errorf("tags %v, want %v", tags, want)
	}
}

// Users are told the oldest Go, the same for all modules.
func TestTheOldestGoIsDocumented(t *testing.T) {
	dirs, _ := workspace(t)
	oldest := gomod(t, repository).Go.Version
	for path, dir := range dirs {
		if got := gomod(t, dir).Go.Version; got != oldest {
			t.Errorf("%s needs Go %s, others %s", path, got, oldest)
		}
	}
	want := strings.Replace(version.Lang("go"+oldest), "go", " Go ", 1) + ", the oldest that is supported"
	for _, document := range []string{"outbox-library.md", "idempotency-library.md"} {
		if !strings.Contains(docblocks.Read(t, filepath.Join(repository, "docs", document)), want) {
			t.Errorf("%s does not say %q", document, want)
		}
	}
}

func prefixed(dir string) string {
	if dir == "" {
		return ""
	}
	return "/" + dir
}

// Parts for tests only stay out of the libraries' modules: users get everything
// listed in go.mod. goleak is a small module without dependencies.
func TestLibrariesRequireNothingOfTheRest(t *testing.T) {
	dirs, _ := workspace(t)
	rest := []string{root, "github.com/testcontainers/", "github.com/twmb/franz-go/pkg/kfake", "github.com/fergusstrange/", "github.com/lib/pq"}
	for path, dir := range dirs {
		if path == root {
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
