package deploy

import (
	"cmp"
	"debug/elf"
	"encoding/json"
	"fmt"
	"go/version"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// largest is the bound of a program's size in its image, in bytes.
var largest = map[string]int64{"/out/cdc-outbox": 27_750_000}

// TestDockerfileCompilesFromItsContext does Docker's work: the Dockerfile's commands
// get the files let through by .dockerignore and taken by COPY, and nothing else.
func TestDockerfileCompilesFromItsContext(t *testing.T) {
	b := builder{context: buildContext(t), stages: stages(t), images: t.TempDir(), roots: map[string]string{}}
	compiled := 0
	for _, s := range b.stages {
		if strings.Contains(strings.Join(s.steps, "\n"), "go build") {
			compiled++
		}
		t.Run(s.name, func(t *testing.T) { b.build(t, s) })
	}
	if last := b.stages[len(b.stages)-1].name; last != "cdc-outbox" {
		t.Errorf("docker build makes %s where no target is named", last)
	}
	if compiled < 4 || b.started < 4 {
		t.Errorf("only %d stages compile something, only %d start something: this test does not read the Dockerfile right", compiled, b.started)
	}
	for _, program := range []string{"cdc-outbox", "cdc-outbox-demo"} {
		if _, err := os.Stat(filepath.Join(b.roots["cdc-outbox-demo"], "usr/local/bin", program)); err != nil {
			t.Errorf("the demo's image: %v", err)
		}
	}
	for program, limit := range largest {
		found := false
		for _, root := range b.roots {
			if info, err := os.Stat(filepath.Join(root, program)); err == nil {
				found = true
				if info.Size() >= limit {
					t.Errorf("%s has %d bytes, no fewer than %d", program, info.Size(), limit)
				}
			}
		}
		if !found {
			t.Errorf("no stage makes %s", program)
		}
	}
}

// Failure mode 146. A company's proxy has a certificate of the company's own
// authority, and its module proxy another address. The authority stays out of
// the image.
func TestDockerfileBuildsBehindAProxy(t *testing.T) {
	compiled := 0
	for _, s := range stages(t) {
		for _, line := range s.steps {
			if !strings.Contains(line, "go build") {
				continue
			}
			compiled++
			for _, argument := range []string{"ARG GOPROXY", "ARG GOSUMDB"} {
				if !slices.Contains(s.steps, argument) {
					t.Errorf("stage %s has no %s", s.name, argument)
				}
			}
			// Go reads every file of the folder, beside the image's own authorities.
			if !strings.Contains(line, "--mount=type=secret,id=ca,target=/etc/ssl/certs/") || strings.Contains(line, "required") {
				t.Errorf("stage %s compiles without the authority that the build may be given: %s", s.name, line)
			}
		}
	}
	if compiled < 4 {
		t.Errorf("only %d stages compile something", compiled)
	}
}

// The program under test and in benchmarks leaves out the same parts as the released
// program.
func TestProgramsAreBuiltWithTheSameTags(t *testing.T) {
	tags := regexp.MustCompile(`(?m)^TAGS = (\S+)$`).FindStringSubmatch(read(t, "../Makefile"))
	if tags == nil {
		t.Fatal("the Makefile has no TAGS")
	}
	for path, want := range map[string]int{"../Dockerfile": 2, "../.goreleaser.yaml": 1, "../e2e/main_test.go": 1, "../bench/internal/rig/connector.go": 1} {
		if found := strings.Count(read(t, path), tags[1]); found != want {
			t.Errorf("%s has the tags %s %d times, want %d", path, tags[1], found, want)
		}
	}
}

// The image's Go does not download another Go, as a machine's Go does.
func TestImageHasTheGoThatIsNeeded(t *testing.T) {
	needed := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, "../go.work"))
	image := regexp.MustCompile(`golang:([\d.]+)`).FindStringSubmatch(read(t, "../Dockerfile"))
	if needed == nil || image == nil || version.Compare("go"+image[1], "go"+needed[1]) < 0 {
		t.Errorf("go.work wants %q, the Dockerfile has %q", needed, image)
	}
}

// Private files, and files changing without the program, are not sent to
// Docker.
func TestContextHasNothingButSources(t *testing.T) {
	ignored := ignore(t)
	for _, path := range []string{
		".git/HEAD", ".env", ".cache/test-summary", "bin/cdc-outbox", "cdc-outbox.yaml", "coverage.out",
		"docs/internals/DESIGN.md", "README.md", "Dockerfile", "deploy/compose/cdc-outbox.yaml", "internal/pipeline/stream/instance_test.go",
	} {
		if skip, err := ignored.MatchesOrParentMatches(path); err != nil || !skip {
			t.Errorf("%s is part of the context, %v", path, err)
		}
	}
}

func ignore(t *testing.T) *patternmatcher.PatternMatcher {
	t.Helper()
	patterns := must.Get(ignorefile.ReadAll(strings.NewReader(read(t, "../.dockerignore"))))(t)
	return must.Get(patternmatcher.New(patterns))(t)
}

// buildContext copies the files let through by .dockerignore into a directory.
func buildContext(t *testing.T) string {
	t.Helper()
	context, ignored := t.TempDir(), ignore(t)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == ".." {
			return err
		}
		relative, err := filepath.Rel("..", path)
		if err != nil {
			return err
		}
		skip, err := ignored.MatchesOrParentMatches(relative)
		switch {
		case err != nil:
			return err
		case skip && d.IsDir() && !ignored.Exclusions():
			return fs.SkipDir
		case skip || !d.Type().IsRegular():
			return nil
		}
		return copyFile(path, filepath.Join(context, relative))
	})
	must.OK(t, err)
	return context
}

// stage is a part of the Dockerfile beginning with FROM.
type stage struct {
	name, from string
	steps      []string // instructions, a line each
}

func stages(t *testing.T) []stage {
	t.Helper()
	var all []stage
	text := regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(read(t, "../Dockerfile"), "")
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "FROM":
			words = slices.DeleteFunc(words, func(word string) bool { return strings.HasPrefix(word, "--") })
			if len(words) != 4 || words[2] != "AS" {
				t.Fatalf("stage without a name: %s", line)
			}
			all = append(all, stage{name: words[3], from: words[1]})
		default:
			last := &all[len(all)-1]
			last.steps = append(last.steps, strings.TrimSpace(line))
		}
	}
	return all
}

// builder carries out the Dockerfile's instructions, with directories for images.
// Images not made by the Dockerfile are empty: the machine's Go compiles.
type builder struct {
	context string
	stages  []stage
	images  string            // a directory
	roots   map[string]string // the file system of each built stage, in images
	started int               // how many of them start a program
}

// build carries out a stage, after the instructions of its base.
func (b *builder) build(t *testing.T, s stage) {
	root := filepath.Join(b.images, s.name)
	if !b.known(s.from) {
		t.Fatalf("stage %s begins with %s, which is neither a stage before it nor an image with a version", s.name, s.from)
	}
	run := step{root: root, builder: b, workdir: "/", environ: map[string]string{}}
	for _, line := range b.inherited(s) {
		run.do(t, line)
	}
	b.roots[s.name] = root
	if len(run.commands) > 0 { // an image, not a compiling stage
		b.started++
		if strings.Contains(s.from, ":") {
			run.environ["PATH"] = cmp.Or(run.environ["PATH"], debianPath)
		}
		run.checkImage(t)
	}
}

func (b *builder) known(image string) bool {
	return b.roots[image] != "" || image == "scratch" || strings.Contains(image, ":")
}

// inherited returns the stage's instructions, with the base stages' first.
func (b *builder) inherited(s stage) []string {
	if i := slices.IndexFunc(b.stages, func(base stage) bool { return base.name == s.from }); i >= 0 {
		return slices.Concat(b.inherited(b.stages[i]), s.steps)
	}
	return s.steps
}

// step is the state between two instructions of a stage.
type step struct {
	*builder
	root, workdir string
	user          string
	commands      [][]string        // of ENTRYPOINT and HEALTHCHECK
	environ       map[string]string // of a command, besides the machine's
}

// given are BuildKit's arguments for a stage asking for them.
var given = map[string]string{"TARGETOS": "linux", "TARGETARCH": runtime.GOARCH}

// debianPath is PATH in an image based on Debian.
const debianPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// checkImage refuses an image that would not start: an image has nothing but the
// copied files, and no shell to look for a program. The program is on PATH, for verbs
// typed in a container.
func (s *step) checkImage(t *testing.T) {
	t.Helper()
	if uid, _, _ := strings.Cut(s.user, ":"); !regexp.MustCompile(`^[1-9]\d*$`).MatchString(uid) {
		t.Errorf("it runs as %q, which Kubernetes does not take for another user than root", s.user)
	}
	for _, command := range s.commands {
		program := filepath.Join(s.root, command[0])
		if !slices.Contains(filepath.SplitList(s.environ["PATH"]), filepath.Dir(command[0])) {
			t.Errorf("%s is not on the image's PATH, %q", command[0], s.environ["PATH"])
		}
		file, err := elf.Open(program)
		if err != nil {
			t.Errorf("it starts %s: %v", command, err)
			continue
		}
		if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) > 0 || file.Section(".interp") != nil {
			t.Errorf("%s needs libraries, of which the image has none: %v, %v", command, libraries, err)
		}
		_ = file.Close()
		if len(command) == 1 || runtime.GOOS != "linux" {
			continue
		}
		must.OK(t, os.Chmod(program, 0o700))
		if out, err := exec.CommandContext(t.Context(), program, append(command[1:], "--help")...).CombinedOutput(); err != nil {
			t.Errorf("it starts %s: %v\n%s", command, err, out)
		}
	}
}

func (s *step) do(t *testing.T, line string) {
	t.Helper()
	name, rest, _ := strings.Cut(line, " ")
	switch name {
	case "WORKDIR":
		s.workdir = rest
	case "ARG", "ENV":
		for _, assignment := range strings.Fields(rest) {
			key, value, found := strings.Cut(assignment, "=")
			if !found {
				value, found = given[key]
			}
			if found {
				s.environ[key] = value
			}
		}
	case "COPY":
		if err := s.copy(strings.Fields(rest)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	case "RUN":
		s.run(t, strings.TrimSpace(regexp.MustCompile(`^(\s*--\S+)+`).ReplaceAllString(rest, "")))
	case "USER":
		s.user = rest
	case "ENTRYPOINT", "HEALTHCHECK":
		var command []string
		if err := json.Unmarshal([]byte(rest[max(0, strings.Index(rest, "[")):]), &command); err != nil || len(command) == 0 {
			t.Fatalf("%s: the image has no shell: write it as a list, %v", line, err)
		}
		s.commands = append(s.commands, command)
	case "LABEL", "EXPOSE", "CMD":
	default:
		t.Fatalf("this test does not know the instruction %s", line)
	}
}

// run runs a compiling command.
func (s *step) run(t *testing.T, command string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-u", "-c", strings.ReplaceAll(command, "/out/", s.root+"/out/"))
	cmd.Dir, cmd.Env = filepath.Join(s.root, s.workdir), os.Environ()
	for key, value := range s.environ {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// copy copies files of the context, or of a stage, as COPY does. Files of images not
// made by the Dockerfile are passed over.
func (s *step) copy(words []string) error {
	from := s.context
	if name, found := strings.CutPrefix(words[0], "--from="); found {
		words, from = words[1:], s.roots[name]
		if from == "" {
			return fmt.Errorf("there is no stage %s before this one", name)
		}
		if !strings.HasPrefix(words[0], "/out/") {
			return nil
		}
	}
	sources, to := words[:len(words)-1], words[len(words)-1]
	if !filepath.IsAbs(to) {
		to = filepath.Join(s.workdir, to) + "/"
	}
	for _, source := range sources {
		if err := copyTree(filepath.Join(from, source), s.root+to); err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies a file, into the directory where to ends with a slash, or
// everything in a directory.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if path == from && strings.HasSuffix(to, "/") {
			relative = filepath.Base(path)
		}
		return copyFile(path, filepath.Join(to, relative))
	})
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
