package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/identity"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// The kinds of login.
const (
	AuthPassword = "password" // or certificate, or whatever else libpq has
	AuthAWS      = "aws_iam"
	AuthAzure    = "azure_entra"
	AuthGoogle   = "google_iam"
)

// Auths are all kinds of login.
var Auths = []string{AuthPassword, AuthAWS, AuthAzure, AuthGoogle}

// Login is the part of a login that changes between connections. A connection
// string carries the login, so every connection has it.
//
// RDS, Azure and Cloud SQL check a token at the login only: the token's end ends
// no connection. So each new connection gets a fresh token, and old connections
// stay.
type Login struct {
	// Auth is one of Auths; "" is AuthPassword. With a cloud's, each connection has
	// a token of the workload.
	Auth string `json:"auth,omitempty"`
	// URL and Password have files, read again for each connection; nil: no files.
	URL      setting.Written `json:"url,omitempty"`
	Password setting.Written `json:"password,omitempty"`
}

// loginParameter is a parameter of the configuration's connection strings; no
// server gets it.
const loginParameter = "cdc_outbox_login"

// Cloud reports whether the login is by a token.
func (l Login) Cloud() bool { return l.Auth != "" && l.Auth != AuthPassword }

// In adds the login to a connection string without one.
func (l Login) In(text string) string {
	plain := !l.Cloud() && !l.URL.Changes() && !l.Password.Changes()
	if plain || strings.Contains(text, loginParameter+"=") {
		return text
	}
	value, _ := json.Marshal(l) // text only
	switch {
	case !strings.Contains(text, "://"):
		return text + " " + loginParameter + "='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(string(value)) + "'"
	case strings.Contains(text, "?"):
		return text + "&" + loginParameter + "=" + url.QueryEscape(string(value))
	}
	return text + "?" + loginParameter + "=" + url.QueryEscape(string(value))
}

// CheckLogin is the error of a connection string with an unsafe login.
func CheckLogin(text string) error {
	_, _, err := parse(text)
	return err
}

// LoginOf is the login in a connection string; none if it is not valid.
func LoginOf(text string) Login {
	if !strings.Contains(text, loginParameter+"=") {
		return Login{}
	}
	cfg, err := pgconn.ParseConfig(text)
	if err != nil {
		return Login{}
	}
	l, _ := loginOf(cfg) // CheckLogin has the error
	return l
}

func loginOf(cfg *pgconn.Config) (l Login, err error) {
	text, ok := cfg.RuntimeParams[loginParameter]
	if !ok {
		return l, nil
	}
	if err = json.Unmarshal([]byte(text), &l); err != nil {
		return l, failure.Configf("remove it from the connection string", "source.url: sets %s, which is the connector's own", loginParameter)
	}
	return l, nil
}

// reread reads the connection string from the files, perhaps half written.
func (l Login) reread() (*pgx.ConnConfig, error) {
	const remedy = "correct the file, or restart after a change of source.url"
	text, err := l.URL.ReadAgain()
	if err != nil {
		return nil, &failure.Error{Remedy: remedy, Err: fmt.Errorf("source.url: %w", err)}
	}
	cfg, err := pgx.ParseConfig(text)
	if err != nil { // with text of the connection string
		return nil, &failure.Error{Remedy: remedy, Err: fmt.Errorf("source.url: the file %s has no connection string any more", strings.Join(l.URL.Files(), ", "))}
	}
	return cfg, nil
}

// secure refuses to send a token over the network without encryption: PostgreSQL
// takes tokens as passwords in clear text.
func (l Login) secure(cfg *pgconn.Config) error {
	if !l.Cloud() {
		return nil
	}
	if cfg.User == "" {
		return failure.Configf("name the user in it, as postgres://USER@HOST:5432/DATABASE", "source.url has no user")
	}
	for _, one := range append([]*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...) {
		local := strings.HasPrefix(one.Host, "/") || one.Host == "localhost" || net.ParseIP(one.Host).IsLoopback()
		if one.TLSConfig == nil && !local {
			return failure.Configf("add sslmode=verify-full and sslrootcert=FILE with the cloud's certificates (or sslmode=require) to the connection string",
				"may connect to %s without TLS, and the token would be sent in clear text", one.Host)
		}
	}
	return nil
}

// password is the password of a new connection to a single host, perhaps with an end.
func (l Login) password(ctx context.Context, one *pgconn.Config) (token identity.Token, err error) {
	switch l.Auth {
	case AuthAWS:
		return identity.RDS(ctx, endpoint(one), one.User)
	case AuthAzure:
		return identity.Azure(ctx, azureScope(one.Host))
	case AuthGoogle:
		return identity.Google(ctx, "https://www.googleapis.com/auth/sqlservice.login")
	}
	if !l.Password.Changes() {
		return identity.Token{Value: one.Password}, nil
	}
	if token.Value, err = l.Password.ReadAgain(); err != nil {
		err = &failure.Error{Remedy: "put the file back, or correct its name and restart", Err: fmt.Errorf("source.password: %w", err)}
	}
	return token, err
}

// who is the owner of the login, as far as known here; "" for a password that stays.
func (l Login) who() string {
	switch {
	case l.Auth == AuthAWS:
		return identity.AWSName()
	case l.Auth == AuthAzure:
		return identity.AzureName()
	case l.Auth == AuthGoogle:
		return identity.GoogleName()
	case l.Password.Changes():
		return "the password in " + strings.Join(l.Password.Files(), ", ")
	case l.URL.Changes():
		return "the connection string in " + strings.Join(l.URL.Files(), ", ")
	}
	return ""
}

// WhoLogsIn returns the owner of a login by a connection string, as Login.who, and the end of the token, if
// any. The token is asked for, without a login.
func WhoLogsIn(ctx context.Context, text string) (who string, ends time.Time, err error) {
	cfg, login, err := parse(text)
	if err != nil {
		return "", ends, err
	}
	token, err := login.password(ctx, &cfg.Config)
	return login.who(), token.Ends, err
}

// endpoint is host:port, as signed for RDS.
func endpoint(one *pgconn.Config) string {
	return net.JoinHostPort(one.Host, strconv.Itoa(int(one.Port)))
}

// azureScope is the scope of a server's cloud.
func azureScope(host string) string {
	for _, domain := range []string{"usgovcloudapi.net", "chinacloudapi.cn"} {
		if strings.HasSuffix(host, "."+domain) {
			return "https://ossrdbms-aad.database." + domain + "/.default"
		}
	}
	return "https://ossrdbms-aad.database.windows.net/.default"
}

// explain adds the identity to a refused login, unless the password never
// changes. The next attempt may succeed, as a rotation reaches server and file at
// different times.
func (l Login) explain(err error, one *pgconn.Config) error {
	pg, refused := errors.AsType[*pgconn.PgError](err)
	if !refused || !strings.HasPrefix(pg.Code, classAuthorization) {
		return err
	}
	user := pgsql.Name(one.User)
	var remedy string
	switch {
	case l.Auth == AuthAWS:
		remedy = "GRANT rds_iam TO " + user + "; turn IAM authentication on at the instance (for replication also rds.iam_auth_for_replication = 1), " +
			"allow the identity rds-db:connect as that user, name RDS's own endpoint as host (the token is for " + endpoint(one) + "), and compare the clocks"
	case l.Auth == AuthAzure:
		remedy = "SELECT * FROM pgaadauth_create_principal('NAME OF THE IDENTITY', false, false); in database postgres, and name the same user in source.url: it is " + user
	case l.Auth == AuthGoogle:
		remedy = "set the flag cloudsql.iam_authentication, add the service account as a user of the instance with role roles/cloudsql.instanceUser, " +
			"and name it in source.url without .gserviceaccount.com: it is " + user
	case l.Password.Changes(), l.URL.Changes():
		remedy = "put the role's password into the file, or wait for its rotation: it is read again at each attempt"
	default:
		return err
	}
	return &failure.Error{Class: failure.Transient, Remedy: remedy, Err: fmt.Errorf("login as %s by %s: %w", user, l.who(), err)}
}
