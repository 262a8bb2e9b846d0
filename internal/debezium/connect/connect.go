// Package connect asks a Kafka Connect worker for a connector's configuration.
//
// Invariants:
//
//  1. Each request has a deadline, and each answer a bound in bytes.
//  2. No error has the login of the address, nor a part of the answer.
//
// Non-goals: changes of a connector, the reading of the configuration.
package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

const (
	patience = 20 * time.Second
	largest  = 1 << 20
)

// IsAddress tells whether the text is an address rather than a file.
func IsAddress(text string) bool {
	return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
}

// Login is for basic authentication. A login within the address prevails.
type Login struct{ User, Password string }

// Answer is a worker's about a connector.
type Answer struct {
	Connector []byte // JSON, with name and config
	Version   string // the connector plugin's; empty if the worker does not tell
}

// Ask gets the connector at the address http://HOST:8083/connectors/NAME.
func Ask(ctx context.Context, address string, login Login) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := newClient(address, login)
	if err != nil {
		return Answer{}, err
	}
	text, err := c.get(ctx, c.connector)
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{Connector: text}
	if plugins, err := c.get(ctx, c.base+"/connector-plugins"); err == nil {
		answer.Version = version(plugins)
	}
	return answer, nil
}

// client asks a worker about a connector.
type client struct {
	server          url.URL // scheme and host
	base, connector string  // paths
	login           Login
	http            *http.Client
}

// newClient takes the address of a connector apart.
func newClient(address string, login Login) (*client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, failure.Configf("write http://HOST:8083/connectors/NAME", "the address of the connector cannot be parsed")
	}
	base, name, ok := strings.Cut(strings.TrimSuffix(u.Path, "/"), "/connectors/")
	name, _, _ = strings.Cut(name, "/")
	if !ok || name == "" {
		return nil, failure.Configf("write http://HOST:8083/connectors/NAME; GET http://HOST:8083/connectors lists the names", "%s is no address of a connector", plain(u))
	}
	if user := u.User; user != nil {
		password, _ := user.Password()
		login = Login{user.Username(), password}
	}
	return &client{
		server: url.URL{Scheme: u.Scheme, Host: u.Host}, base: base, connector: base + "/connectors/" + name, login: login,
		http: &http.Client{
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
			// A redirect would take the login elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// plain is an address without login and query.
func plain(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func (c *client) get(ctx context.Context, path string) ([]byte, error) {
	to := c.server
	to.Path = path
	address := to.String()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if c.login != (Login{}) {
		request.SetBasicAuth(c.login.User, c.login.Password)
	}
	response, err := c.http.Do(request)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL
		}
		return nil, &failure.Error{Class: failure.Transient, Remedy: "correct the address, or start the worker", Err: fmt.Errorf("ask %s: %w", address, err)}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, largest+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer of %s: %w", address, err)
	case len(body) > largest:
		return nil, failure.Configf("write http://HOST:8083/connectors/NAME", "%s answers more than %d bytes", address, largest)
	case response.StatusCode == http.StatusOK:
		return body, nil
	}
	remedy := "correct the address: http://HOST:8083/connectors/NAME"
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		remedy = "name the user by --user NAME, and the variable with the password by --password-env VARIABLE"
	case http.StatusNotFound:
		remedy = "GET http://HOST:8083/connectors lists the names"
	}
	return nil, failure.Configf(remedy, "%s answers %s", address, response.Status)
}

// version is the version of PostgreSQL's connector among the worker's plugins.
func version(plugins []byte) string {
	var all []struct{ Class, Version string }
	if json.Unmarshal(plugins, &all) != nil {
		return ""
	}
	for _, p := range all {
		if strings.HasSuffix(p.Class, ".PostgresConnector") && p.Version != "null" {
			return p.Version
		}
	}
	return ""
}
