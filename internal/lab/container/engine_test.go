package container

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/moby/moby/client"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// standIn is the engine that testcontainers finds.
var standIn *engine

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cdc-outbox-engine-")
	if err == nil {
		standIn, err = newEngine(filepath.Join(dir, "docker.sock"), http.StatusOK)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = os.Setenv("DOCKER_HOST", standIn.host)
	_ = os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true") // the reaper is a container, too
	code := m.Run()
	_ = standIn.server.Close()
	_ = os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// engine speaks as much of the Docker Engine API (v1.44) as this package asks of it.
type engine struct {
	host   string
	server *http.Server

	mu      sync.Mutex
	asked   []string // method, path, and signal or body of what changes something
	running bool     // containers
}

func startEngine(t *testing.T, info int) *engine {
	t.Helper()
	e := must.Get(newEngine(filepath.Join(t.TempDir(), "docker.sock"), info))(t)
	t.Cleanup(func() { _ = e.server.Close() })
	return e
}

func newEngine(path string, info int) (*engine, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	e := &engine{host: "unix://" + path, running: true}
	e.server = &http.Server{Handler: e.handler(info)}
	go func() { _ = e.server.Serve(listener) }()
	return e, nil
}

// containerID is that of all containers, and networkID of all networks.
var containerID, networkID = strings.Repeat("c", 64), strings.Repeat("d", 64)

func (e *engine) handler(info int) http.Handler {
	mux := http.NewServeMux()
	for pattern, a := range map[string]struct {
		status int
		body   string
	}{
		"/_ping":                                  {http.StatusOK, "OK"},
		"GET /{version}/info":                     {info, `{"ServerVersion":"29.0.0","message":"the engine is not ready"}`},
		"GET /{version}/networks":                 {http.StatusOK, `[{"Name":"bridge"}]`},
		"GET /{version}/networks/{name}":          {http.StatusOK, `{"Id":"` + networkID + `"}`},
		"GET /{version}/images/{name...}":         {http.StatusOK, `{"Id":"sha256:1"}`},
		"POST /{version}/containers/create":       {http.StatusCreated, `{"Id":"` + containerID + `"}`},
		"POST /{version}/networks/create":         {http.StatusCreated, `{"Id":"` + networkID + `"}`},
		"POST /{version}/containers/{id}/wait":    {http.StatusOK, `{"StatusCode":137}`},
		"POST /{version}/{path...}":               {http.StatusNoContent, ""},
		"DELETE /{version}/{path...}":             {http.StatusNoContent, ""},
		"PUT /{version}/containers/{id}/archive":  {http.StatusOK, ""},
		"HEAD /{version}/containers/{id}/archive": {http.StatusOK, ""},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			e.note(r)
			answer(w, a.status, a.body)
		})
	}
	mux.HandleFunc("GET /{version}/containers/{id}/json", func(w http.ResponseWriter, _ *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		answer(w, http.StatusOK, fmt.Sprintf(`{"Id":%q,"State":{"Running":%v,"ExitCode":2},"Config":{},"HostConfig":{}}`, containerID, e.running))
	})
	mux.HandleFunc("GET /{version}/containers/{id}/logs", func(w http.ResponseWriter, _ *http.Request) {
		const words = "FATAL:  no pg_hba.conf\n"
		w.Header().Set("Content-Type", "application/vnd.docker.multiplexed-stream")
		fmt.Fprintf(w, "\x02\x00\x00\x00\x00\x00\x00%c%s", len(words), words)
	})
	mux.HandleFunc("GET /{version}/containers/{id}/archive", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString([]byte(`{"name":"data"}`)))
		fmt.Fprint(w, "tar of "+r.URL.Query().Get("path"))
	})
	return mux
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Api-Version", "1.44")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprint(w, body)
}

// note keeps what changes something.
func (e *engine) note(r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return
	}
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	words := []string{r.Method, "/" + path}
	if signal := r.URL.Query().Get("signal"); signal != "" {
		words = append(words, signal)
	}
	if dir := r.URL.Query().Get("path"); dir != "" {
		words = append(words, dir)
	}
	if body, _ := io.ReadAll(r.Body); len(body) > 0 {
		words = append(words, string(body))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, strings.Join(words, " "))
}

// changes are everything asked since the last call.
func (e *engine) changes() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	asked := e.asked
	e.asked = nil
	return asked
}

func TestAnEngineThatAnswersIsUsed(t *testing.T) {
	broken, good := startEngine(t, http.StatusInternalServerError), startEngine(t, http.StatusOK)
	for _, hosts := range [][]string{{good.host}, {broken.host, good.host}} {
		if ok, err := answers(t.Context(), hosts); !ok || err != nil {
			t.Errorf("answers(%v) = %v, %v", hosts, ok, err)
		}
	}
}

// Tests would take other servers, and nobody would notice.
func TestAnEngineThatDoesNotAnswerIsAnError(t *testing.T) {
	nobody := "unix://" + filepath.Join(t.TempDir(), "docker.sock")
	for _, host := range []string{startEngine(t, http.StatusInternalServerError).host, nobody, "nonsense"} {
		ok, err := answers(t.Context(), []string{host})
		if ok || err == nil || !strings.Contains(err.Error(), host) || !strings.Contains(err.Error(), Env+"=0") {
			t.Errorf("answers(%s) = %v, %v", host, ok, err)
		}
	}
}

func TestNoEngineIsNone(t *testing.T) {
	if ok, err := answers(t.Context(), nil); ok || err != nil {
		t.Errorf("answers() = %v, %v", ok, err)
	}
}

func TestEnginesAreLookedForWhereTheyAreSet(t *testing.T) {
	e := startEngine(t, http.StatusOK)
	path := strings.TrimPrefix(e.host, "unix://")
	t.Setenv("XDG_RUNTIME_DIR", filepath.Dir(path))
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	got := hosts(t.Output())
	if !slices.Contains(got, e.host) || !slices.Contains(got, "tcp://127.0.0.1:1") {
		t.Errorf("hosts() = %v", got)
	}
}

func TestProgramsThatAreAskedForBeatAnEngine(t *testing.T) {
	t.Setenv("PROGRAMS", t.TempDir())
	if contained, err := Chosen("PROGRAMS"); contained || err != nil {
		t.Errorf("Chosen() = %v, %v", contained, err)
	}
}

// A signal sent within the container does not end the first process.
func TestTheEngineSendsTheSignal(t *testing.T) {
	e := startEngine(t, http.StatusOK)
	c, err := client.New(client.WithHost(e.host))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := kill(t.Context(), c, "abc", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got, want := e.changes(), []string{"POST /containers/abc/kill 9", "POST /containers/abc/wait"}; !slices.Equal(got, want) {
		t.Errorf("the engine was asked %v, want %v", got, want)
	}
}
