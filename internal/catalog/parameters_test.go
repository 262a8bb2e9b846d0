package catalog

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// libpqParameters are all of PostgreSQL 18 (fe-connect.c, PQconninfoOptions),
// with a value without an effect, if any.
var libpqParameters = map[string]string{
	"application_name": "a", "channel_binding": "prefer", "client_encoding": "LATIN1", "connect_timeout": "3", "dbname": "d",
	"fallback_application_name": "b", "gssdelegation": "0", "gssencmode": "prefer", "gsslib": "gssapi", "host": "h", "hostaddr": "127.0.0.1",
	"keepalives": "1", "keepalives_count": "3", "keepalives_idle": "10", "keepalives_interval": "10", "krbsrvname": "postgres",
	"load_balance_hosts": "random", "max_protocol_version": "3.0", "min_protocol_version": "3.0", "oauth_client_id": "x", "oauth_client_secret": "x",
	"oauth_issuer": "x", "oauth_scope": "x", "options": "-c geqo=off", "passfile": "/nonexistent", "password": "p", "port": "5432",
	"require_auth": "scram-sha-256", "requirepeer": "postgres", "requiressl": "1", "scram_client_key": "x", "scram_server_key": "x",
	"service": "", "servicefile": "/nonexistent", "ssl_max_protocol_version": "TLSv1.3", "ssl_min_protocol_version": "TLSv1.2",
	"sslcert": "", "sslcertmode": "allow", "sslcompression": "0", "sslcrl": "x", "sslcrldir": "x", "sslkey": "", "sslkeylogfile": "x",
	"sslmode": "prefer", "sslnegotiation": "postgres", "sslpassword": "x", "sslrootcert": "", "sslsni": "1", "target_session_attrs": "any",
	"tcp_user_timeout": "1000", "user": "u",
}

// No parameter of libpq's gets to the server as a setting of the session: each
// is taken, has no effect, or is refused by its name. The documents have each.
func TestParametersOfLibpq(t *testing.T) {
	text := string(must.Get(os.ReadFile("../../docs/configuration.md"))(t))
	_, section, _ := strings.Cut(text, "### Parameters of source.url")
	section, _, _ = strings.Cut(section, "\n### ")
	settings := []string{"application_name", "options"}
	for _, name := range slices.Sorted(maps.Keys(libpqParameters)) {
		if !strings.Contains(section, "`"+name+"`") {
			t.Errorf("docs/configuration.md does not have %s", name)
		}
		url := "host=h user=u dbname=d"
		if value := libpqParameters[name]; value != "" {
			url += " " + name + "='" + value + "'"
		}
		_, isRefused := refused[name]
		_, isNeedless := needless[name]
		cfg, _, err := parse(url)
		switch {
		case isRefused && !isNeedless:
			if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", name, err)
			continue
		case isNeedless != (len(NeedlessParameters(url)) == 1):
			t.Errorf("%s: without effect are %v", name, NeedlessParameters(url))
		}
		for left := range cfg.RuntimeParams {
			if !slices.Contains(settings, left) {
				t.Errorf("%s: the server gets %s", name, left)
			}
		}
	}
	for name := range refused {
		if _, ok := libpqParameters[name]; !ok {
			t.Errorf("%s is none of libpq's", name)
		}
	}
	for _, url := range []string{"host=h gssencmode=require", "host=h gssdelegation=1", "host=h ssl_min_protocol_version=SSLv3", "host=a,b hostaddr=127.0.0.1", "host=h hostaddr=name", "hostaddr=127.0.0.1 host=/tmp"} {
		if err := CheckParameters(url); failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// Parameters taken have their effect.
func TestParametersThatAreTaken(t *testing.T) {
	cfg, _, err := parse("host=db.example hostaddr=127.0.0.9 sslmode=require ssl_min_protocol_version=TLSv1.3 fallback_application_name=b")
	must.OK(t, err)
	if got := must.Get(cfg.LookupFunc(t.Context(), "db.example"))(t); !slices.Equal(got, []string{"127.0.0.9"}) {
		t.Errorf("db.example is looked up as %v", got)
	}
	if cfg.TLSConfig.MinVersion != tlsVersions["TLSv1.3"] {
		t.Errorf("the least version of TLS is %x", cfg.TLSConfig.MinVersion)
	}
	if cfg.RuntimeParams["application_name"] != "b" {
		t.Errorf("application_name is %q", cfg.RuntimeParams["application_name"])
	}
	if plain := must.Get(pgconn.ParseConfig("host=h"))(t); must.Get(adapt(plain))(t) != nil {
		t.Error("of nothing, something has no effect")
	}
}
