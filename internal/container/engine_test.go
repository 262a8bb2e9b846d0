package container

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/moby/moby/client"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine speaks as much of the Docker Engine API (v1.44) as this package asks of it.
type engine struct {
	host string

	mu    sync.Mutex
	asked []string // method, path and signal of what changes a container
}

func startEngine(t *testing.T, info int) *engine {
	t.Helper()
	path := filepath.Join(t.TempDir(), "docker.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{host: "unix://" + path}
	server := &http.Server{Handler: e.handler(info)}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return e
}

func (e *engine) handler(info int) http.Handler {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Api-Version", "1.44")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	note := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			e.mu.Lock()
			e.asked = append(e.asked, strings.TrimSpace(r.Method+" /"+r.PathValue("path")+" "+r.URL.Query().Get("signal")))
			e.mu.Unlock()
			next(w, r)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", answer(http.StatusOK, "OK"))
	mux.HandleFunc("GET /{version}/info", answer(info, `{"ServerVersion":"29.0.0","message":"the engine is not ready"}`))
	mux.HandleFunc("POST /{version}/{path...}", note(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/wait") {
			answer(http.StatusOK, `{"StatusCode":137}`)(w, r)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	return mux
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

// A signal that is sent within the container does not end its first process.
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
	e.mu.Lock()
	defer e.mu.Unlock()
	if want := []string{"POST /containers/abc/kill 9", "POST /containers/abc/wait"}; !slices.Equal(e.asked, want) {
		t.Errorf("the engine was asked %v, want %v", e.asked, want)
	}
}
