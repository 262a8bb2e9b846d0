package catalog

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// connectFailed puts the error of a connection attempt into a line with a
// failure.Class and a remedy. pgconn tries each address with and without TLS
// and reports every attempt; connectFailed says each thing once.
func connectFailed(err error, cfg *pgconn.Config) error {
	connect, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return Classify(err)
	}
	texts, refusedTLS := attempts(connect.Unwrap())
	short := &connectError{text: strings.Join(texts, "; "), err: err}
	pg, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case answered && pg.Code == pgerrcode.InsufficientPrivilege && pg.Routine == routineConnect:
		return failure.Configf("GRANT CONNECT ON DATABASE "+pgsql.Name(cfg.Database)+" TO "+pgsql.Name(cfg.User)+";", "%w", short)
	case answered && pg.Code == pgerrcode.InsufficientPrivilege:
		return failure.Configf("ALTER ROLE "+pgsql.Name(cfg.User)+" WITH REPLICATION;", "%w", short)
	case answered && pg.Code == pgerrcode.ProtocolViolation:
		return failure.Configf(remedyPooler, "%w", short)
	case answered && pg.Routine == routineEncoding:
		return failure.Configf(remedyEncoding, "the database's encoding is not supported: %w", short)
	case answered && slices.Contains(badParameter, pg.Code):
		return failure.Configf("correct the parameter in source.url, or remove it: the server takes one that is none of libpq's for a setting of its own", "%w", short)
	case refusedTLS:
		return failure.Configf("turn ssl on in the server's configuration, or set sslmode in source.url to prefer or disable; or correct host and port", "%w", short)
	}
	if isOtherKind(err) {
		return &failure.Error{Class: failure.Transient, Err: short,
			Remedy: "start the primary, or promote a standby: a server answers, but is not what target_session_attrs in source.url asks for"}
	}
	classified := Classify(short)
	if answered || failure.RemedyOf(classified) != "" {
		return classified
	}
	remedy := "correct host and port in source.url: what answers there hangs up, is silent, or does not speak PostgreSQL's protocol"
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		remedy = "start PostgreSQL, or correct host and port in source.url"
	}
	return &failure.Error{Class: failure.Transient, Remedy: remedy, Err: classified}
}

// routineConnect refuses a role without the right to connect to the database
// (postinit.c).
const routineConnect = "CheckMyDatabase"

// routineEncoding refuses a client_encoding without a conversion from the
// database's (mbutils.c).
const routineEncoding = "InitializeClientEncoding"

// remedyPooler is for the answer of a pooler refusing our start-up parameters.
// PostgreSQL itself answers so only to foreign clients.
const remedyPooler = "what answers is a pooler, as PgBouncer: " + ConnectDirectly

// ConnectDirectly is the remedy for the limits of a pooler.
const ConnectDirectly = "connect to PostgreSQL directly, and not through a pooler, as only PostgreSQL has replication connections; or set source.mode: poll"

// badParameter are the codes of a server refusing a setting of the connection
// string, or the setting's value.
var badParameter = []string{pgerrcode.UndefinedObject, pgerrcode.InvalidParameterValue, pgerrcode.CantChangeRuntimeParam}

// connectError is a pgconn.ConnectError with another text.
type connectError struct {
	text string
	err  error
}

func (e *connectError) Error() string { return e.text }
func (e *connectError) Unwrap() error { return e.err }

// attempts lists the faults, each once. A refusal of TLS with a next attempt is
// left out. refusedTLS reports such a refusal as the only fault.
func attempts(err error) (texts []string, refusedTLS bool) {
	for _, e := range failure.Split(err) {
		for line := range strings.SplitSeq(e.Error(), "\n") {
			said := slices.ContainsFunc(texts, func(s string) bool { return strings.HasSuffix(s, line) })
			if !said {
				texts = append(texts, line)
			}
		}
	}
	// By pgconn's own text, for lack of a type.
	answered := slices.DeleteFunc(slices.Clone(texts), func(s string) bool {
		return strings.Contains(s, "server refused TLS connection")
	})
	if len(answered) > 0 {
		return answered, false
	}
	return texts, true
}
