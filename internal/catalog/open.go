package catalog

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/unwatched"
)

// open and openReplication are the only places opening a connection to
// PostgreSQL (by a rule of the linter). So each connection is a line, every
// question on it ends, and each session has the environment of its kind.

// open opens an ordinary connection, with a limit on the server's silence.
func open(ctx context.Context, cfg *pgx.ConnConfig, login Login, env environment, silence time.Duration) (*pgx.Conn, error) {
	return openAt(ctx, cfg, login, env, silence, nil)
}

// openAt is open at a single address, where the configuration leads there.
func openAt(ctx context.Context, cfg *pgx.ConnConfig, login Login, env environment, silence time.Duration, at net.Addr) (*pgx.Conn, error) {
	cfg.DialFunc = limited(unwatchedSocket(cfg.DialFunc), silence)
	all := addresses(ctx, &cfg.Config)
	if at != nil {
		if i := slices.IndexFunc(all, func(one *pgconn.Config) bool { return isAt(ctx, one, at) }); i >= 0 {
			all = all[i : i+1]
		}
	}
	return openAny(ctx, cfg, login, env, all)
}

// openAny opens an ordinary connection to the first of addresses accepting us.
// The dial function is cfg's.
func openAny(ctx context.Context, cfg *pgx.ConnConfig, login Login, env environment, all []*pgconn.Config) (*pgx.Conn, error) {
	return anyHost(ctx, all, login, func(one *pgconn.Config) (*pgx.Conn, error) {
		alone := *cfg
		alone.Config = *one
		conn, err := pgx.ConnectConfig(ctx, &alone)
		if err == nil {
			registerTypes(conn.TypeMap())
			if err = env.settle(ctx, conn.PgConn()); err != nil {
				Close(conn)
			}
		}
		return conn, err
	})
}

// unwatchedSocket wraps a dial function; see package unwatched.
func unwatchedSocket(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return unwatched.Conn(conn), nil
	}
}

// openReplication opens a replication connection.
func openReplication(ctx context.Context, cfg *pgconn.Config, login Login, env environment) (*pgconn.PgConn, error) {
	cfg.DialFunc = limited(quietSocket(smallWindows(cfg.DialFunc)), answerTimeout)
	return anyHost(ctx, addresses(ctx, cfg), login, func(one *pgconn.Config) (*pgconn.PgConn, error) {
		conn, err := pgconn.ConnectConfig(ctx, one)
		if err == nil {
			if err = env.settle(ctx, conn); err != nil {
				Close(conn)
			}
		}
		return conn, err
	})
}

// anyHost connects to the first address accepting us. It gives pgconn one
// address at a time. With several, pgconn stops at the first refusing the
// password, the database or the right to connect, without telling the addresses
// apart. But a host may refuse for good, as a standby with another pg_hba.conf
// does, while the next is only down for a while. Each attempt has a login of its
// own.
func anyHost[C any](ctx context.Context, all []*pgconn.Config, login Login, connect func(*pgconn.Config) (C, error)) (conn C, err error) {
	var errs []error
	later := false
	for _, one := range all {
		token, absent := login.password(ctx, one)
		if absent != nil {
			errs = append(errs, absent)
			continue
		}
		one.Password = token.Value
		choosy := *one
		choosy.ValidateConnect = firstChoice(one.ValidateConnect)
		if conn, err = connect(&choosy); err == nil {
			return conn, nil
		}
		later = later || errors.Is(err, errSecondChoice)
		errs = append(errs, login.explain(connectFailed(err, one), one))
	}
	if later {
		for _, one := range all {
			if conn, err = connect(one); err == nil {
				return conn, nil
			}
		}
	}
	return conn, refusal(errs)
}

// errSecondChoice is the error of a server that target_session_attrs accepts
// only if there is no other.
var errSecondChoice = errors.New("not the kind of server that target_session_attrs prefers")

// otherKind is the error of a server that answers, but is of another kind than
// target_session_attrs asks for: a standby, while there is no primary.
type otherKind struct{ err error }

func (e *otherKind) Error() string { return e.err.Error() }
func (e *otherKind) Unwrap() error { return e.err }

// firstChoice is validate, except that a server which is not preferred is an
// error. pgconn would accept it at once, as it knows of no other address.
func firstChoice(validate pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	if validate == nil {
		return nil
	}
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		err := validate(ctx, conn)
		if _, ok := errors.AsType[*pgconn.NotPreferredError](err); ok {
			return errSecondChoice
		}
		if err != nil && !conn.IsClosed() {
			return &otherKind{err}
		}
		return err
	}
}

// addresses splits a configuration into one for each address, in their order.
// The attempts with TLS and without stay together, as they get to the same
// server.
func addresses(ctx context.Context, cfg *pgconn.Config) (all []*pgconn.Config) {
	attempts := append([]*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...)
	for len(attempts) > 0 {
		first := attempts[0]
		other := func(a *pgconn.FallbackConfig) bool { return a.Host != first.Host || a.Port != first.Port }
		n := slices.IndexFunc(attempts, other)
		if n < 0 {
			n = len(attempts)
		}
		host := *cfg
		host.Host, host.Port, host.TLSConfig = first.Host, first.Port, first.TLSConfig
		host.Fallbacks = attempts[1:n]
		attempts = attempts[n:]
		all = append(all, resolve(ctx, &host)...)
	}
	return all
}

// resolve splits the configuration of a single host by the addresses of its
// name. pgconn reports a name that has none.
func resolve(ctx context.Context, host *pgconn.Config) (all []*pgconn.Config) {
	if network, _ := pgconn.NetworkAddress(host.Host, host.Port); network == "unix" {
		return []*pgconn.Config{host}
	}
	ctx, cancel := context.WithTimeout(ctx, host.ConnectTimeout)
	defer cancel()
	found, err := host.LookupFunc(ctx, host.Host)
	if err != nil {
		one := *host
		one.LookupFunc = func(context.Context, string) ([]string, error) { return nil, err }
		return []*pgconn.Config{&one}
	}
	for _, address := range found {
		one := *host
		one.LookupFunc = func(context.Context, string) ([]string, error) { return []string{address}, nil }
		all = append(all, &one)
	}
	return all
}

// isAt tells whether a connection's address is among addresses.
func isAt(ctx context.Context, one *pgconn.Config, at net.Addr) bool {
	network, address := pgconn.NetworkAddress(one.Host, one.Port)
	if network != "unix" {
		found, err := one.LookupFunc(ctx, one.Host) // of resolve
		if err != nil {
			return false
		}
		address = net.JoinHostPort(found[0], strconv.Itoa(int(one.Port)))
	}
	return address == at.String()
}

// refusal is the error of an attempt at several addresses. If the error of one
// of them may pass, so may this one. It is permanent only if all are.
func refusal(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	texts := make([]string, 0, len(errs))
	for _, err := range errs {
		if !slices.Contains(texts, err.Error()) {
			texts = append(texts, err.Error())
		}
	}
	hope := slices.MinFunc(errs, func(a, b error) int { return cmp.Compare(permanence(a), permanence(b)) })
	return &failure.Error{Class: failure.ClassOf(hope), Remedy: failure.RemedyOf(hope), Err: &connectError{text: strings.Join(texts, "; "), err: hope}}
}

func isOtherKind(err error) bool {
	_, is := errors.AsType[*otherKind](err)
	return is
}

// permanence orders the errors of connecting by how soon they may pass.
func permanence(err error) int {
	switch {
	case errors.Is(err, ErrUnavailable), isOtherKind(err):
		return 0
	case failure.ClassOf(err) != failure.Transient:
		return 3
	case errors.Is(err, ErrUnknownHost):
		return 2
	}
	return 1
}
