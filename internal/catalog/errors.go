package catalog

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// ErrSlotActive is wrapped by the error of Open when another process streams
// from the slot.
var ErrSlotActive = errors.New("replication slot is active elsewhere")

// ErrUnknownHost is wrapped by a connection error when a host name does not
// exist: a typing error, or a name service that is not up yet, as at boot.
var ErrUnknownHost = errors.New("unknown host")

// ErrTerminated is wrapped by the error of a connection an administrator's
// command ended: a fast shutdown, or pg_terminate_backend. The server reports
// both in the same way.
var ErrTerminated = errors.New("the server ended the connection on an administrator's command")

// ErrCrashed is wrapped by the error of a connection the server ended with all
// others, after the crash of a process.
var ErrCrashed = errors.New("the server ended all connections after a crash")

// ErrUnavailable is wrapped by the error of a connection the server refused
// while starting, stopping or recovering: only the message says which, in the
// server's language.
var ErrUnavailable = errors.New("the server takes no connections now")

// ErrShutdown is wrapped by the error of a stream the server ended at the
// server's stop.
var ErrShutdown = errors.New("the server is shutting down")

// classAuthorization begins the SQLSTATE codes of a refused login.
const classAuthorization = "28"

// Functions of the server (14 to 18), that report what the code alone does not
// tell. Messages cannot be relied on: they are in the server's language.
const (
	// routinePublication: a missing publication, not a missing slot.
	routinePublication = "get_publication_oid"
	// routineRequirements: wal_level is too low, here or on the primary.
	routineRequirements = "CheckLogicalDecodingRequirements"
	// routineOutputPlugin: output_plugin_libraries does not have the plugin.
	routineOutputPlugin = "StartupDecodingContext"
	// routineStandbySlots: a standby that synchronized_standby_slots names is
	// away (17). It is a warning each second, and an error of a stopping
	// server.
	routineStandbySlots = "StandbySlotsHaveCaughtup"
)

// Classify gives an error of the server, or of a connection attempt, its
// failure.Class and a remedy, and makes it wrap one of the errors above where
// one fits. Unknown errors stay transient.
func Classify(err error) error {
	if err == nil {
		return nil
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return classifyServer(err, pg)
	}
	if _, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		return failure.Configf("see the PostgreSQL documentation, \"Connection Strings\"; special characters in a password must be percent-encoded",
			"source.url: %w", err)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			err = fmt.Errorf("%w: %w", ErrUnknownHost, err)
		}
		return &failure.Error{Class: failure.Transient, Remedy: "correct the host in source.url, or wait for the name service", Err: err}
	}
	if certificateInvalid(err) {
		return failure.Configf("give the server's CA with sslrootcert and its name as host in source.url, or renew the certificate",
			"TLS to PostgreSQL: %w", err)
	}
	return err
}

func classifyServer(err error, pg *pgconn.PgError) error {
	switch {
	case pg.Code == pgerrcode.ObjectInUse:
		return fmt.Errorf("%w: %w", ErrSlotActive, err)
	case pg.Code == pgerrcode.AdminShutdown:
		return fmt.Errorf("%w: %w", ErrTerminated, err)
	case pg.Code == pgerrcode.CrashShutdown:
		return fmt.Errorf("%w: %w", ErrCrashed, err)
	case pg.Code == pgerrcode.CannotConnectNow:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case pg.Routine == routineStandbySlots:
		return fmt.Errorf("%w: %w", ErrShutdown, err)
	case pg.Code == pgerrcode.InvalidCatalogName:
		return failure.Configf("correct the database in source.url", "%w", err)
	case strings.HasPrefix(pg.Code, classAuthorization):
		return failure.Configf("correct user and password in source.url, or source.password (which does not go with a source.url of --set), or the server's pg_hba.conf (it needs a line for the database, not only for replication)", "%w", err)
	case pg.Code == pgerrcode.InsufficientPrivilege && pg.Routine == routineOutputPlugin:
		return failure.Configf(AllowPlugin, "%w", err)
	case pg.Code == pgerrcode.InsufficientPrivilege:
		return failure.Configf("ALTER ROLE … REPLICATION and see `cdc-outbox setup --print` for the grants", "%w", err)
	case pg.Code == pgerrcode.ObjectNotInPrerequisiteState && pg.Routine == routineRequirements:
		return failure.Configf("ALTER SYSTEM SET wal_level = 'logical'; then restart PostgreSQL", "%w", err)
	case pg.Code == pgerrcode.ObjectNotInPrerequisiteState:
		// "can no longer get changes from replication slot": lost since the look at the
		// slot. The next look tells of the loss, and errors.on_loss decides.
		return &failure.Error{Class: failure.Transient, Remedy: remedySlot, Err: err}
	case pg.Code == pgerrcode.UndefinedFile:
		// A segment of the log, the plugin's library, a file of spilled
		// changes. Whoever connects anew asks the slot first: only that tells
		// of a loss.
		return &failure.Error{Class: failure.Transient, Remedy: remedyFile, Err: err}
	case pg.Code == pgerrcode.UndefinedObject && pg.Routine == routinePublication:
		return failure.Lossf(remedyPublication, "%w", err)
	}
	return err
}

// AcceptGap is the way on after a loss, for every remedy that has it. The
// command and the flags are part of the public contract. The command as typed
// first changes nothing.
const AcceptGap = "`cdc-outbox setup --accept-gap` says since when events may be missing, and changes nothing; " +
	"with --yes run goes on without them, and `cdc-outbox repair --publish` beside run publishes those still in the outbox"

// NewPublication is what AcceptGap does besides, where the publication is
// missing.
const NewPublication = "; --yes also creates the publication, as the tables' owner"

const (
	remedySlot        = "the server cannot read the slot; the next try looks at the slot first and says why (`cdc-outbox check`)"
	remedyFile        = "a file is missing on the server, which its log names: put it back, or reinstall the server's package; events are lost only if the slot says so (`cdc-outbox check`)"
	remedyPublication = "the publication must exist before the slot's position; run `cdc-outbox check`; if the publication was dropped: " + AcceptGap + NewPublication
)

// Unanswered gives a remedy to the error of a stream that was not started for
// want of an answer: the server itself answers at once.
func Unanswered(err error) error {
	if !errors.Is(err, errSilent) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return &failure.Error{Class: failure.Transient, Err: err,
		Remedy: "if this comes again, what answers is a pooler that does not know replication, as pgpool-II: " + ConnectDirectly}
}

func certificateInvalid(err error) bool {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	_, ok := errors.AsType[x509.CertificateInvalidError](err)
	return ok
}

// NoticeError returns the error a notice inside the stream means. A missing
// publication is an error up to PostgreSQL 17 and only a warning from 18 on,
// after which the server leaves the rows out (pgoutput.c, LoadPublications). A
// wait for a standby has the same code (see StandbyWait). The message is in the
// server's language and cannot be relied on.
func NoticeError(n *pgconn.Notice) error {
	if n.SeverityUnlocalized == "WARNING" && n.Code == pgerrcode.ObjectNotInPrerequisiteState && n.Routine != routineStandbySlots {
		return failure.Lossf(remedyPublication, "the server leaves out rows: %s: %s", n.Message, n.Detail)
	}
	return nil
}
