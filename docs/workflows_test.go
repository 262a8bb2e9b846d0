package docs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workflow is one of GitHub's.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Steps []struct{ Uses, Run string }
	}
}

// workflows are all of this repository, by path.
func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	paths, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]workflow{}
	for _, path := range paths {
		var w workflow
		decode(t, path, &w)
		all[path] = w
	}
	if len(all) < 3 {
		t.Errorf("only %d workflows found", len(all))
	}
	return all
}

func decode(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, path)), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// A command that only a workflow has cannot be tried before it is pushed.
func TestWorkflowsRunMakeTargets(t *testing.T) {
	makefile := read(t, "../Makefile")
	command := regexp.MustCompile(`^make ([a-z0-9-]+)( [A-Z]+=(\$\{\{ [a-z.]+ \}\}|[\w.]+))*$`)
	for path, w := range workflows(t) {
		found := 0
		for name, job := range w.Jobs {
			for _, step := range job.Steps {
				if step.Run == "" {
					continue
				}
				found++
				m := command.FindStringSubmatch(step.Run)
				switch {
				case m == nil:
					t.Errorf("%s: job %s runs more than make: %s", path, name, step.Run)
				case !strings.Contains(makefile, "\n"+m[1]+":"):
					t.Errorf("%s: job %s: make has no target %s", path, name, m[1])
				}
			}
		}
		if found == 0 {
			t.Errorf("%s runs nothing", path)
		}
	}
}

// A tag of another repository may be moved, a commit may not. Dependabot reads the
// comment, and renews both.
func TestWorkflowsPinActions(t *testing.T) {
	used := regexp.MustCompile(`(?m)^.*uses: .*$`)
	pinned := regexp.MustCompile(`uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	for path := range workflows(t) {
		for _, line := range used.FindAllString(read(t, path), -1) {
			if !pinned.MatchString(line) {
				t.Errorf("%s: no commit and version: %s", path, strings.TrimSpace(line))
			}
		}
	}
}

// A job that writes asks for that right on its own.
func TestWorkflowsMayOnlyRead(t *testing.T) {
	for path, w := range workflows(t) {
		if !maps.Equal(w.Permissions, map[string]string{"contents": "read"}) {
			t.Errorf("%s: permissions %v", path, w.Permissions)
		}
	}
}
func TestReleaseBuildsProgramsThatExist(t *testing.T) {
	var release struct{ Builds []struct{ ID, Main string } }
	decode(t, "../.goreleaser.yaml", &release)
	for _, build := range release.Builds {
		if _, err := os.Stat(filepath.Join("..", build.Main, "main.go")); err != nil {
			t.Errorf("%s: %v", build.ID, err)
		}
	}
	if len(release.Builds) < 3 {
		t.Errorf("only %d programs are built", len(release.Builds))
	}
}
