package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// handler routes the paths. ServeMux answers 404 for others and 405 with Allow
// for other methods; a GET pattern takes HEAD too.
func handler(health Health, metrics prometheus.Gatherer, page Page) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { livez(w, health) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { readyz(w, health, page.Knows(r.Host)) })
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		if err := page.Knows(r.Host); err != nil {
			http.Error(w, err.Error(), http.StatusMisdirectedRequest)
			return
		}
		writeJSON(w, http.StatusOK, health.Status())
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	page.Register(mux)
	return harden(mux)
}

// harden keeps answers out of caches and browsers from guessing at them.
func harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // the page has another
		next.ServeHTTP(w, r)
	})
}

func livez(w http.ResponseWriter, health Health) {
	answer := struct {
		Live   bool   `json:"live"`
		Reason string `json:"reason,omitempty"`
	}{Live: true}
	code := http.StatusOK
	if err := health.Live(); err != nil {
		answer.Live, answer.Reason = false, err.Error()
		code = http.StatusServiceUnavailable
	}
	writeJSON(w, code, answer)
}

// readyz answers whether the instance is ready. The reasons against are left out
// for an asker with an unknown name: unknown is the error.
func readyz(w http.ResponseWriter, health Health, unknown error) {
	answer := struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons"`
	}{}
	answer.Ready, answer.Reasons = health.Ready()
	switch {
	case len(answer.Reasons) == 0:
		answer.Reasons = []string{}
	case unknown != nil:
		answer.Reasons = []string{unknown.Error()}
	}
	code := http.StatusOK
	if !answer.Ready {
		code = http.StatusServiceUnavailable
	}
	writeJSON(w, code, answer)
}

func writeJSON(w http.ResponseWriter, code int, answer any) {
	body, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		http.Error(w, "encode the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}
