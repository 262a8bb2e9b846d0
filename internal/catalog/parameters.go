package catalog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Parameters of libpq pgx does not know. It would send them to the server as
// settings of the session.

// needless have no effect here, and why.
var needless = map[string]string{
	"client_encoding":     "events are always in UTF-8",
	"keepalives":          ownLimits,
	"keepalives_idle":     ownLimits,
	"keepalives_interval": ownLimits,
	"keepalives_count":    ownLimits,
	"tcp_user_timeout":    ownLimits,
	"load_balance_hosts":  "hosts are tried in their order",
	"sslcompression":      "there is none",
	"gsslib":              "there is one library only",
	"gssencmode":          "there is no encryption by GSSAPI; sslmode encrypts",
	"gssdelegation":       "credentials are not delegated",
}

const ownLimits = "the connector asks the server itself whether it is there"

// refused cannot be left out without a word: a user counts on them. Some have a
// value asking for nothing.
var refused = map[string]struct{ harmless, instead string }{
	"gssencmode":       {"disable prefer", "encrypt by sslmode"},
	"gssdelegation":    {"0", "log in by password or certificate"},
	"requiressl":       {"0", "write sslmode=require"},
	"requirepeer":      {"", "the connector does not ask who owns a Unix socket"},
	"sslcrl":           {"", "revoked certificates are not looked up; trust a CA of your own by sslrootcert"},
	"sslcrldir":        {"", "revoked certificates are not looked up; trust a CA of your own by sslrootcert"},
	"sslkeylogfile":    {"", "keys are not logged"},
	"scram_client_key": {"", "write the password"}, "scram_server_key": {"", "write the password"},
	"oauth_issuer": {"", "log in by password or certificate"}, "oauth_client_id": {"", "log in by password or certificate"},
	"oauth_client_secret": {"", "log in by password or certificate"}, "oauth_scope": {"", "log in by password or certificate"},
}

var tlsVersions = map[string]uint16{"TLSv1": tls.VersionTLS10, "TLSv1.1": tls.VersionTLS11, "TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}

// CheckParameters is the error of a connection string with parameters unknown
// to the connector.
func CheckParameters(url string) error {
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		return err
	}
	_, err = adapt(cfg)
	return err
}

// NeedlessParameters are a connection string's parameters without effect, each
// with the reason.
func NeedlessParameters(url string) []string {
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil // the connection's error
	}
	ignored, _ := adapt(cfg)
	return ignored
}

// adapt takes the parameters pgx does not know from those of the session.
func adapt(cfg *pgconn.Config) (ignored []string, err error) {
	params := cfg.RuntimeParams
	delete(params, loginParameter)
	for name, r := range refused {
		if value, ok := params[name]; ok && !slices.Contains(strings.Fields(r.harmless), value) {
			err = errors.Join(err, failure.Configf("remove it from the connection string: "+r.instead, "sets %s, which the connector does not have", name))
		}
		if _, also := needless[name]; !also {
			delete(params, name)
		}
	}
	for name, why := range needless {
		if _, ok := params[name]; ok {
			ignored = append(ignored, name+": "+why)
		}
		delete(params, name)
	}
	slices.Sort(ignored)
	if name := params["fallback_application_name"]; params["application_name"] == "" && name != "" {
		params["application_name"] = name
	}
	delete(params, "fallback_application_name")
	return ignored, errors.Join(err, tlsRange(cfg), hostAddresses(cfg))
}

// tlsRange sets the versions of TLS.
func tlsRange(cfg *pgconn.Config) (err error) {
	limit := func(name string, set func(*tls.Config, uint16)) {
		value, ok := cfg.RuntimeParams[name]
		delete(cfg.RuntimeParams, name)
		version, known := tlsVersions[value]
		switch {
		case !ok || value == "":
		case !known:
			err = errors.Join(err, failure.Configf("write TLSv1.2 or TLSv1.3", "sets %s to %q", name, value))
		default:
			for _, t := range tlsConfigs(cfg) {
				set(t, version)
			}
		}
	}
	limit("ssl_min_protocol_version", func(t *tls.Config, v uint16) { t.MinVersion = v })
	limit("ssl_max_protocol_version", func(t *tls.Config, v uint16) { t.MaxVersion = v })
	return err
}

func tlsConfigs(cfg *pgconn.Config) (all []*tls.Config) {
	for _, one := range append([]*pgconn.FallbackConfig{{TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...) {
		if one.TLSConfig != nil {
			all = append(all, one.TLSConfig)
		}
	}
	return all
}

// hostAddresses connects to the addresses in hostaddr, one for each host, whose
// names the certificates have.
func hostAddresses(cfg *pgconn.Config) error {
	value := cfg.RuntimeParams["hostaddr"]
	delete(cfg.RuntimeParams, "hostaddr")
	if value == "" {
		return nil
	}
	hosts := []string{cfg.Host}
	for _, f := range cfg.Fallbacks {
		if !slices.Contains(hosts, f.Host) {
			hosts = append(hosts, f.Host)
		}
	}
	if slices.ContainsFunc(hosts, func(h string) bool { return strings.HasPrefix(h, "/") }) {
		return failure.Configf("name the host, too, as certificates have its name", "sets hostaddr, but no host")
	}
	addresses := strings.Split(value, ",")
	if len(addresses) != len(hosts) || slices.ContainsFunc(addresses, func(a string) bool { return net.ParseIP(a) == nil }) {
		return failure.Configf("name one address for each host, and each host once", "sets hostaddr to %q, which is not one IP address for each of %d hosts", value, len(hosts))
	}
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) {
		if i := slices.Index(hosts, host); i >= 0 {
			return addresses[i : i+1], nil
		}
		return nil, fmt.Errorf("hostaddr has no address of %s", host)
	}
	return nil
}
