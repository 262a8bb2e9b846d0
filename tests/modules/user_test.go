package modules

import (
	"fmt"
	"go/version"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// user is somebody's program with its downloads: our modules without the
// beginning of their paths, and the beginnings of others' paths.
type user struct {
	imports    []string
	own, other []string
}

var (
	core   = []string{"/idempotency", "/internal/base"}
	kafka  = []string{"github.com/twmb/franz-go", "github.com/klauspost/compress", "github.com/pierrec/lz4/v4"}
	tracer = []string{"go.opentelemetry.io/otel", "go.opentelemetry.io/auto/sdk", "github.com/go-logr/", "github.com/cespare/xxhash/v2"}
	// The dependencies of idempotency/memory, beside the core.
	window = []string{"github.com/bits-and-blooms/", "github.com/hashicorp/golang-lru/v2"}

	users = map[string]user{
		"a producer":            {[]string{"/outbox"}, []string{"/outbox", "/internal/base"}, []string{"github.com/google/uuid"}},
		"a producer with spans": {[]string{"/outbox", "/outbox/tracing"}, []string{"/outbox", "/outbox/tracing", "/internal/base"}, slices.Concat(tracer, []string{"github.com/google/uuid"})},
		"memory, guards":        {[]string{"/idempotency", "/idempotency/memory", "/idempotency/guard"}, core, window},
		"redis":                 {[]string{"/idempotency", "/idempotency/redis"}, append(core, "/idempotency/redis"), []string{"github.com/redis/go-redis/v9", "github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys"}},
		"postgres":              {[]string{"/idempotency", "/idempotency/postgres"}, append(core, "/idempotency/postgres"), []string{"github.com/jackc/", "golang.org/x/sync", "golang.org/x/text"}},
		"values elsewhere": {[]string{"/idempotency", "/idempotency/claimcheck/s3"}, append(core, "/idempotency/claimcheck/s3"), []string{
			"github.com/minio/", "github.com/cespare/xxhash/v2", "github.com/dustin/go-humanize", "github.com/google/uuid", "github.com/klauspost/",
			"github.com/philhofer/fwd", "github.com/rs/xid", "github.com/tinylib/msgp", "github.com/zeebo/xxh3", "go.yaml.in/yaml/v3", "golang.org/x/", "gopkg.in/ini.v1",
		}},
		"dynamodb":   {[]string{"/idempotency", "/idempotency/dynamodb"}, append(core, "/idempotency/dynamodb"), []string{"github.com/aws/", "golang.org/x/sync"}},
		"a consumer": {[]string{"/idempotency", "/idempotency/consumer"}, append(core, "/idempotency/consumer"), kafka},
		"a consumer with metrics": {[]string{"/idempotency/metrics"}, append(core, "/idempotency/consumer", "/idempotency/metrics"), append(kafka,
			"github.com/prometheus/", "github.com/beorn7/perks", "github.com/cespare/xxhash/v2", "github.com/munnerz/goautoneg", "golang.org/x/sys", "google.golang.org/protobuf")},
		"a consumer with spans": {[]string{"/idempotency/tracing"}, append(core, "/idempotency/consumer", "/idempotency/tracing"), append(kafka, tracer...)},
	}
)

// A user gets a module with its own clients, and nobody else's: from an empty
// cache, with the module's oldest Go.
func TestE2EUsersGetWhatTheyImport(t *testing.T) {
	dirs, release := workspace(t)
	registry := publish(t, dirs, release)
	for name, u := range users {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machine := newMachine(t, registry, gomod(t, dirs[root+u.imports[0]]).Go.Version)
			var source strings.Builder
			source.WriteString("package main\n\nimport (\n")
			get := []string{"get"}
			for _, path := range u.imports {
				fmt.Fprintf(&source, "\t_ %q\n", root+path)
				get = append(get, root+path+"@"+release)
			}
			source.WriteString(")\n\nfunc main() {}\n")
			must.OK(t, os.WriteFile(filepath.Join(machine.dir, "main.go"), []byte(source.String()), 0o600))
			machine.run(t, "mod", "init", "example.com/user")
			machine.run(t, get...)
			machine.emptyCache(t) // go get has looked into the modules above
			machine.run(t, "build", "-trimpath", "-o", os.DevNull, ".")
			machine.wantDownloads(t, u)
			// tidy looks at the tests of everything imported, too.
			machine.run(t, "mod", "tidy")
			u.other = append(u.other, window...)
			u.other = append(u.other, "go.uber.org/goleak")
			for _, r := range gomod(t, machine.dir).Require {
				if path := r.Mod.Path; !u.gets(path) {
					t.Errorf("go.mod requires %s", path)
				}
			}
		})
	}
}

// gets says whether the user is to get a module.
func (u user) gets(path string) bool {
	if own, ok := strings.CutPrefix(path, root); ok {
		return slices.Contains(u.own, own)
	}
	return slices.ContainsFunc(u.other, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

// The programs are installed as the documents say.
func TestE2EProgramsAreInstalled(t *testing.T) {
	dirs, release := workspace(t)
	registry := publish(t, dirs, release)
	for _, path := range []string{root + "/cmd/cdc-outbox", root + "/idempotency/cmd/cdc-outbox-idempotency"} {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			machine := newMachine(t, registry, gomod(t, repository).Go.Version)
			machine.environ = append(machine.environ, "GOBIN="+machine.dir)
			machine.run(t, "install", "-trimpath", path+"@"+release)
			out, err := exec.CommandContext(t.Context(), filepath.Join(machine.dir, name), "version").CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), name+" ") {
				t.Errorf("%s, %v", out, err)
			}
		})
	}
}

// A go.mod lists the module's needs.
func TestE2EModulesAreTidy(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "scripts/tidy.sh", "check")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		skipOffline(t, out)
		t.Fatalf("%v\n%s", err, out)
	}
}

// machine has Go, and an empty cache.
type machine struct {
	goCommand, dir, cache string
	environ               []string
}

// newMachine has the version of Go, or another of the same release, with the same
// language and library. The test is skipped without such a Go, or without others'
// modules.
func newMachine(t *testing.T, registry, goVersion string) *machine {
	t.Helper()
	m := &machine{goCommand: "go", dir: t.TempDir(), environ: os.Environ()}
	if version.Lang(runtime.Version()) != version.Lang("go"+goVersion) {
		cmd := exec.CommandContext(t.Context(), "go", "env", "GOROOT")
		cmd.Env = append(os.Environ(), "GOTOOLCHAIN=go"+goVersion)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Skipf("Go %s cannot be had: %s", goVersion, out)
		}
		root := strings.TrimSpace(string(out))
		m.goCommand = filepath.Join(root, "bin", "go")
		m.environ = append(m.environ, "GOROOT="+root) // go test has set it to its own
	}
	settings := must.Get(exec.CommandContext(t.Context(), "go", "env", "GOPROXY", "GOMODCACHE").Output())(t)
	proxy, modules, _ := strings.Cut(strings.TrimSpace(string(settings)), "\n")
	// Modules downloaded before are not downloaded again.
	m.environ = append(m.environ, "GOTOOLCHAIN=local", "GOWORK=off", "GOFLAGS=-modcacherw", "GONOSUMDB="+root,
		"GOPROXY="+registry+",file://"+filepath.Join(modules, "cache", "download")+","+proxy)
	m.emptyCache(t)
	return m
}

func (m *machine) emptyCache(t *testing.T) {
	m.cache = t.TempDir()
	m.environ = append(m.environ, "GOMODCACHE="+m.cache)
}

// run runs Go.
func (m *machine) run(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), m.goCommand, args...)
	cmd.Dir, cmd.Env = m.dir, m.environ
	out, err := cmd.CombinedOutput()
	if err == nil {
		return
	}
	skipOffline(t, out)
	t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
}

// skipOffline ends the test where Go did not reach the source of others' modules.
func skipOffline(t *testing.T, out []byte) {
	t.Helper()
	for _, sign := range []string{"dial tcp", "i/o timeout", "proxyconnect", "TLS handshake timeout"} {
		if strings.Contains(string(out), sign) {
			t.Skipf("others' modules cannot be had: %s", out)
		}
	}
}

// wantDownloads compares the modules downloaded, not only their go.mod, with the
// user's list.
func (m *machine) wantDownloads(t *testing.T, u user) {
	t.Helper()
	var own []string
	downloads := filepath.Join(m.cache, "cache", "download")
	must.OK(t, filepath.WalkDir(downloads, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".zip" {
			return err
		}
		relative := must.Get(filepath.Rel(downloads, filepath.Dir(filepath.Dir(path))))(t)
		name := must.Get(module.UnescapePath(filepath.ToSlash(relative)))(t)
		if !u.gets(name) {
			t.Errorf("downloads %s", name)
		}
		if short, ok := strings.CutPrefix(name, root); ok {
			own = append(own, short)
		}
		return nil
	}))
	slices.Sort(own)
	if want := slices.Sorted(slices.Values(u.own)); !slices.Equal(own, want) {
		t.Errorf("downloads of ours %v, want %v", own, want)
	}
}
