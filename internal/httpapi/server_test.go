package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixed is a Health that never changes.
type fixed struct {
	dead    error
	reasons []string
	part    bool // the reasons are against a part
	status  any
}

func (f fixed) Live() error             { return f.dead }
func (f fixed) Ready() (bool, []string) { return f.part || len(f.reasons) == 0, f.reasons }
func (f fixed) Status() any             { return f.status }

// blank is a page with a name alone.
type blank struct{}

func (blank) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("the page")) })
}
func (blank) Knows(host string) error {
	if strings.HasPrefix(host, "attacker.") {
		return errors.New("unknown name")
	}
	return nil
}
func (blank) Run(ctx context.Context) { <-ctx.Done() }

func TestEndpoints(t *testing.T) {
	well := fixed{status: map[string]string{"role": "active"}}
	ill := fixed{dead: errors.New("stuck"), reasons: []string{"Kafka: no broker", "role is starting"}, status: math.NaN()}
	for _, tt := range []struct {
		name, method, path string
		health             Health
		code               int
		contentType        string
		body               string // a part
	}{
		{"live", "GET", "/livez", well, 200, "application/json", `"live": true`},
		{"dead", "GET", "/livez", ill, 503, "application/json", `"reason": "stuck"`},
		{"ready", "GET", "/readyz", well, 200, "application/json", `"reasons": []`},
		{"ready but for a part", "GET", "/readyz", fixed{reasons: []string{"pipeline acme: gone"}, part: true}, 200, "application/json", `"pipeline acme: gone"`},
		{"not ready", "GET", "/readyz", ill, 503, "application/json", `"Kafka: no broker",`},
		{"status", "GET", "/status", well, 200, "application/json", `"role": "active"`},
		{"status that is no JSON", "GET", "/status", ill, 500, "text/plain; charset=utf-8", "encode the answer"},
		{"metrics", "GET", "/metrics", well, 200, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", "cdc_outbox_confirmed_lsn 0"},
		{"page", "GET", "/", well, 200, "text/plain; charset=utf-8", "the page"},
		{"head", "HEAD", "/readyz", well, 200, "application/json", ""},
		{"other method", "POST", "/readyz", well, 405, "text/plain; charset=utf-8", "Method Not Allowed"},
		{"other path", "GET", "/debug/pprof/", well, 404, "text/plain; charset=utf-8", "404"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer := httptest.NewRecorder()
			set := metrics.New("", "")
			set.Pipeline("")
			handler(tt.health, set.Gatherer(), blank{}).ServeHTTP(answer, httptest.NewRequest(tt.method, tt.path, nil))
			if answer.Code != tt.code {
				t.Errorf("code %d, want %d", answer.Code, tt.code)
			}
			if got := answer.Header().Get("Content-Type"); got != tt.contentType {
				t.Errorf("content type %q, want %q", got, tt.contentType)
			}
			must.Contain(t, answer.Body.String(), tt.body)
			if tt.contentType == "application/json" && !json.Valid(answer.Body.Bytes()) {
				t.Errorf("body %q is not JSON", answer.Body)
			}
			if answer.Header().Get("Cache-Control") != "no-store" {
				t.Error("the answer may be cached")
			}
		})
	}
}

// A foreign site's script reads no text, even if the site's DNS server answers with
// this address. Probes and Prometheus may use any name.
func TestForeignNamesAreToldVerdictsOnly(t *testing.T) {
	// Words, as a number of a metric can have any digits.
	const why = "order 4711 is refused"
	ill := fixed{reasons: []string{why}, status: map[string]string{"error": why}}
	partly := ill
	partly.part = true
	for path, code := range map[string]int{"/livez": 200, "/readyz": 503, "/metrics": 200, "/status": 421} {
		for _, host := range []string{"attacker.example:8080", "localhost"} {
			answer, request := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
			request.Host = host
			handler(ill, metrics.New("", "").Gatherer(), blank{}).ServeHTTP(answer, request)
			foreign := host != "localhost"
			if foreign && answer.Code != code || !foreign && answer.Code == 421 {
				t.Errorf("%s under %s answers %d", path, host, answer.Code)
			}
			told := strings.Contains(answer.Body.String(), why)
			if may := !foreign && (path == "/readyz" || path == "/status"); told != may {
				t.Errorf("%s under %s: tells why is %t", path, host, told)
			}
			answer = httptest.NewRecorder()
			handler(partly, metrics.New("", "").Gatherer(), blank{}).ServeHTTP(answer, request)
			if foreign && strings.Contains(answer.Body.String(), why) {
				t.Errorf("%s under %s tells of a part of the process", path, host)
			}
		}
	}
}

func TestServeUntilTheContextEnds(t *testing.T) {
	s := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()

	if code, body, err := Ask(t.Context(), s.Addr().String(), "/livez"); code != http.StatusOK || len(body) == 0 {
		t.Errorf("/livez answers %d, %q, %v", code, body, err)
	}
	cancel()
	select {
	case err := <-served:
		if err != nil {
			t.Errorf("Serve = %v", err)
		}
	case <-time.After(shutdownTimeout + time.Minute):
		t.Fatal("Serve does not return")
	}
	// The address is free again.
	again := must.Get(Listen(s.Addr().String(), fixed{}, metrics.New("", "").Gatherer(), blank{}, zap.NewNop()))(t)
	must.OK(t, again.Close())
}

func TestServeWithAContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := listen(t).Serve(ctx); err != nil {
		t.Errorf("Serve = %v", err)
	}
}

func TestServeReportsABrokenListener(t *testing.T) {
	s := listen(t)
	must.OK(t, s.Close())
	if err := s.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "http.listen") {
		t.Errorf("Serve = %v, want an error that names http.listen", err)
	}
}

func TestListenFailureIsAConfigurationError(t *testing.T) {
	taken := listen(t)
	defer func() { _ = taken.Close() }()
	for _, tt := range []struct{ name, address, text, remedy string }{
		{"in use", taken.Addr().String(), "address already in use", "another port"},
		{"not ours", "192.0.2.1:8080", "192.0.2.1", "an address of this machine"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Listen(tt.address, fixed{}, metrics.New("", "").Gatherer(), blank{}, zap.NewNop())
			if failure.ClassOf(err) != failure.Config {
				t.Fatalf("Listen = %v, want class Config", err)
			}
			if !strings.Contains(err.Error(), "http.listen") || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %q does not name http.listen and %q", err, tt.text)
			}
			must.Contain(t, failure.RemedyOf(err), tt.remedy)
		})
	}
}

func listen(t *testing.T) *Server {
	t.Helper()
	return must.Get(Listen("127.0.0.1:0", fixed{}, metrics.New("", "").Gatherer(), blank{}, zap.NewNop()))(t)
}
