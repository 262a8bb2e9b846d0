package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestHealthcheck(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("{\n \"ready\": false}\n"))
		}
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	_, port, err := net.SplitHostPort(address)
	must.OK(t, err)
	for _, tt := range []struct {
		name   string
		listen string
		args   []string
		code   int
		stderr string // part of it
	}{
		{"well", address, nil, 0, ""},
		{"well, any address", "0.0.0.0:" + port, nil, 0, ""},
		{"well, no host", ":" + port, nil, 0, ""},
		{"not ready", address, []string{"--ready"}, 1, `503 Service Unavailable: { "ready": false}`},
		{"nobody there", "127.0.0.1:1", nil, 1, "does not answer"},
		{"HTTP is off", "", nil, 2, "http.listen"},
		{"port unknown", "127.0.0.1:0", nil, 2, "fixed port"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			environ := []string{"CDC_OUTBOX_SOURCE_URL=postgres:///app", "CDC_OUTBOX_HTTP_LISTEN=" + tt.listen}
			got := execute(t.Context(), environ, append([]string{"healthcheck"}, tt.args...)...)
			if got.code != tt.code || !strings.Contains(got.stderr, tt.stderr) || got.stdout != "" {
				t.Errorf("got %+v, want code %d and %q", got, tt.code, tt.stderr)
			}
		})
	}
}
