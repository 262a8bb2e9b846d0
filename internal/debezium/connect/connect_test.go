package connect

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// worker is a Connect worker behind basic authentication, beneath a path.
func worker(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case r.URL.Path == "/connect/connectors/elsewhere":
			http.Redirect(w, r, "http://other.example.com/connectors/orders", http.StatusFound)
		case user != "admin" || password != "secret@word":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/connect/connectors/my orders":
			_, _ = w.Write([]byte(`{"name":"my orders","config":{}}`))
		case r.URL.Path == "/connect/connectors/my orders/status":
			_, _ = w.Write([]byte(`{"name":"my orders","connector":{"state":"RUNNING"},"tasks":[{"id":0,"state":"FAILED","trace":"org.apache.X: no\n\tat"}]}`))
		case r.URL.Path == "/connect/connectors/stopped/status":
			_, _ = w.Write([]byte(`{"name":"stopped","connector":{"state":"STOPPED"},"tasks":[]}`))
		case r.URL.Path == "/connect/connectors/other/status":
			_, _ = w.Write([]byte(`{}`))
		case r.URL.Path == "/connect/connectors/large":
			_, _ = w.Write([]byte(strings.Repeat("a", largest+1)))
		case r.URL.Path == "/connect/connector-plugins":
			_, _ = w.Write([]byte(`[{"class":"org.example.Sink","version":"null"},{"class":"io.debezium.connector.postgresql.PostgresConnector","version":"3.1.2.Final"}]`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestAsk(t *testing.T) {
	at := worker(t).URL + "/connect"
	login := Login{"admin", "secret@word"}
	for _, address := range []string{at + "/connectors/my%20orders", at + "/connectors/my%20orders/", at + "/connectors/my%20orders/config?x=y"} {
		got := must.Get(Ask(t.Context(), address, login))(t)
		if string(got.Connector) != `{"name":"my orders","config":{}}` || got.Version != "3.1.2.Final" {
			t.Errorf("%s: %s, %s", address, got.Connector, got.Version)
		}
	}
	within := strings.Replace(at, "http://", "http://admin:secret%40word@", 1)
	must.Get(Ask(t.Context(), within+"/connectors/my%20orders", Login{}))(t)

	for _, c := range []struct {
		address       string
		login         Login
		cause, remedy string
	}{
		{within + "/connectors/none", Login{}, "404", "lists the names"},
		{at + "/connectors/my%20orders", Login{"admin", "wrong"}, "401", "--user"},
		{at + "/connectors/large", login, "more than", "connectors/NAME"},
		{at + "/connectors/elsewhere", login, "302", "correct the address"},
		{at + "/connectors/", login, "is no address of a connector", "connectors/NAME"},
		{at, login, "is no address of a connector", "connectors/NAME"},
		{"http://admin:secret%40word@127.0.0.1:1/connectors/x", Login{}, "refused", "start the worker"},
		{"http://[::1", Login{}, "cannot be parsed", "connectors/NAME"},
	} {
		_, err := Ask(t.Context(), c.address, c.login)
		if err == nil {
			t.Errorf("%s: no error", c.address)
			continue
		}
		must.Contain(t, err.Error(), c.cause)
		must.Contain(t, failure.RemedyOf(err), c.remedy)
		if strings.Contains(err.Error()+failure.RemedyOf(err), "secret") {
			t.Errorf("%v has the password", err)
		}
	}
}
