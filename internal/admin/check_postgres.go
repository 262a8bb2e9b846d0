package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// Versions supported by the connector.
const (
	oldestMajor = 14
	newestMajor = 19
)

// postgres runs the checks of the database side.
func (d *doctor) postgres(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()

	if ignored := catalog.NeedlessParameters(d.cfg.Source.URL.Reveal()); len(ignored) > 0 {
		d.ok("postgresql.url", "without effect: %s", strings.Join(ignored, "; "))
	}
	who, ends, err := catalog.WhoLogsIn(ctx, d.cfg.Source.URL.Reveal())
	if d.identity("postgresql.identity", who, ends, err) {
		if err = d.connectAsRun(ctx); err != nil {
			d.fail("postgresql.connection", err)
		}
	}
	if err != nil {
		rest := "version, settings, privileges, tables, publication and slot"
		if d.polls() {
			rest = "version, privileges, tables and indexes"
		}
		d.skip("postgresql", "no connection: "+rest)
		return
	}
	if d.polls() {
		d.polling(ctx)
		return
	}
	server, err := catalog.ReadServer(ctx, d.conn)
	if err != nil {
		d.fail("postgresql.connection", err)
		return
	}
	d.server = &server
	d.ok("postgresql.connection", "database %s on system %s", server.Database, server.SystemID)

	d.databaseClock(ctx)
	d.readSlot(ctx)
	d.serverItself()
	d.encoding(ctx)
	d.mayConnect(ctx)
	d.capacity()
	d.timeouts(ctx)
	d.synchronous(ctx)
	d.plugin(ctx)
	d.awaitedStandbys(ctx)
	d.pendingRestart(ctx)
	d.outboxTables(ctx)
	d.retention(ctx)
	d.repairHere()
	d.emit(ctx)
	d.publication(ctx)
	d.slotState(ctx)
	d.patroni(ctx)
	d.streams(ctx)
	if d.slotKnown && d.slot == nil {
		d.openTransactions(ctx, blockingAge, "the slot's creation waits for them")
	} else {
		d.openTransactions(ctx, retainingAge, "the slot retains all WAL since they began")
	}
}

func (d *doctor) serverItself() {
	d.supported(*d.server)
	if err := logs(*d.server); err != nil {
		d.fail("postgresql.wal_level", err)
	} else {
		d.ok("postgresql.wal_level", "%s", d.server.WALLevel)
	}
	d.walLimit()
}

// plugin looks whether the server lets slots use the output plugin.
func (d *doctor) plugin(ctx context.Context) {
	if err := catalog.PluginAllowed(ctx, d.conn); err != nil {
		d.fail("postgresql.output_plugin_libraries", err)
	}
}

// encoding judges the text of a database without UTF-8.
func (d *doctor) encoding(ctx context.Context) {
	const name = "postgresql.encoding"
	encoding := d.conn.PgConn().ParameterStatus("server_encoding")
	charset, err := catalog.ReadCharset(ctx, d.conn)
	switch {
	case err != nil:
		d.fail(name, err)
	case charset != nil:
		d.ok(name, "%s: a row with a character that has no equivalent in UTF-8 is a bad event (errors.on_bad_event)", encoding)
	case encoding == "SQL_ASCII":
		d.warn(name, "move the data to a database in UTF8 (pg_dump --encoding=…)",
			"SQL_ASCII: the database does not say what its bytes mean; those of key and payload are published as they are, and an id or header that is no UTF-8 is a bad event")
	default:
		d.ok(name, "%s", encoding)
	}
}

// walLimit: a slot keeps the log for as long as its reader is away.
func (d *doctor) walLimit() {
	const name = "postgresql.max_slot_wal_keep_size"
	if limit := d.server.MaxSlotWALKeepSize; limit >= 0 {
		d.ok(name, "%s", formatBytes(limit))
		return
	}
	d.warn(name, "choose less than the disk has free, and more than is written in the longest outage to survive: "+
		"ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf(); (a managed service has it among its parameters)",
		"-1, no limit: a connector or a Kafka that stays away fills the disk, which stops the database; with a limit the slot is lost instead, and events with it (exit code 3)")
}

// supported looks at the server's version, and whether the server is writable.
func (d *doctor) supported(server catalog.Server) {
	switch major := server.Major(); {
	case major < oldestMajor:
		d.fail("postgresql.version", failure.Configf("upgrade the server", "PostgreSQL %d is too old; %d is the oldest that works", major, oldestMajor))
	case major > newestMajor:
		d.warn("postgresql.version", "", "PostgreSQL %d is newer than any this was tested with (%d to %d)", major, oldestMajor, newestMajor)
	default:
		d.ok("postgresql.version", "PostgreSQL %d", major)
	}
	for _, defect := range catalog.Defects(server.Version) {
		text, remedy := defect.Describe(server.Version)
		d.warn("postgresql.version", remedy, "%s", text)
	}

	if server.InRecovery {
		d.fail("postgresql.primary", onStandby())
	} else {
		d.ok("postgresql.primary", "not in recovery")
	}
}

// mayConnect tries a replication connection as the role.
func (d *doctor) mayConnect(ctx context.Context) {
	const name = "postgresql.replication"
	role := d.conn.Config().User
	repl, err := catalog.ConnectReplication(ctx, d.cfg.Source.URL.Reveal())
	if err != nil {
		remedy := failure.RemedyOf(err)
		if allowed, readErr := catalog.HasReplication(ctx, d.conn); readErr == nil && !allowed {
			remedy = d.grantReplication()
		}
		d.fail(name, &failure.Error{Class: failure.Config, Remedy: remedy, Err: fmt.Errorf("role %s cannot open a replication connection: %w", role, err)})
		return
	}
	defer catalog.Close(repl)
	if _, err := catalog.Identify(ctx, repl); err != nil {
		d.fail(name, err)
		return
	}
	d.ok(name, "role %s may open replication connections", role)
}

// capacity looks for a free slot and a free walsender where they are needed.
func (d *doctor) capacity() {
	s := *d.server
	err := roomForSlot(s, d.cfg.Source.Slot)
	if d.slotKnown && d.slot == nil && err != nil {
		d.fail("postgresql.slots", err)
	} else {
		d.ok("postgresql.slots", "%d of %d in use", s.UsedSlots, s.MaxSlots)
	}

	streaming := d.slot != nil && d.slot.Active
	if s.UsedSenders >= s.MaxSenders && !streaming {
		d.fail("postgresql.senders", failure.Configf(
			"ALTER SYSTEM SET max_wal_senders = "+fmt.Sprint(s.MaxSenders+4)+"; and restart PostgreSQL",
			"all %d WAL senders are in use", s.MaxSenders))
	} else {
		d.ok("postgresql.senders", "%d of %d in use", s.UsedSenders, s.MaxSenders)
	}
}

func (d *doctor) timeouts(ctx context.Context) {
	const name = "postgresql.wal_sender_timeout"
	limit, interval := d.server.WALSenderTimeout, d.cfg.Source.StatusInterval
	role := pgsql.Name(d.conn.Config().User)
	switch {
	case limit == 0:
		d.warn(name, "ALTER ROLE "+role+" SET wal_sender_timeout = '60s';",
			"off: the server may take long to notice that the connector is gone, and keeps the slot occupied")
	case limit < 2*interval:
		d.fail(name, failure.Configf(fmt.Sprintf("set source.status_interval to at most %s, or: ALTER ROLE %s SET wal_sender_timeout = '60s';", limit/4, role),
			"%s is less than twice source.status_interval (%s): the server would cut the connection", limit, interval))
	case limit/2 > d.cfg.Source.LivenessTimeout:
		d.warn(name, fmt.Sprintf("set source.liveness_timeout to at least %s, or: ALTER ROLE %s SET wal_sender_timeout = '60s';", limit/2, role),
			"%s: in a large transaction the server answers every half of it only, which is later than source.liveness_timeout (%s); it is then asked beside the stream whether it works",
			limit, d.cfg.Source.LivenessTimeout)
	default:
		d.ok(name, "%s, status every %s", limit, interval)
	}

	d.transactionTimeout(ctx)
	if idle := d.server.IdleSlotTimeout; idle > 0 {
		d.warn("postgresql.idle_replication_slot_timeout", "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
			"%s: a connector that is down for longer loses its slot and events", idle)
	}
}

// transactionTimeout says that a limit for others is not the connector's.
func (d *doctor) transactionTimeout(ctx context.Context) {
	const name = "postgresql.transaction_timeout"
	limit, err := catalog.TransactionTimeout(ctx, d.conn)
	switch {
	case err != nil:
		d.fail(name, err)
	case limit != "":
		d.ok(name, "%s for the role's other sessions; those of the connector have none, as it would end the stream", limit)
	}
}

// synchronous finds out whether commits will wait for the connector.
func (d *doctor) synchronous(ctx context.Context) {
	const name = "postgresql.synchronous_standby_names"
	sync, err := catalog.ReadSyncStandbys(ctx, d.conn)
	switch {
	case err != nil:
		d.fail(name, err)
	case d.cfg.Source.Visibility == config.VisibilityWait && sync.Ours():
		d.fail(name, sync.Circular())
	case sync.Ours():
		d.warn(name, catalog.CommitsWaitRemedy, "%s (it is %q, the application_name %q)", catalog.CommitsWait, sync.Setting, sync.Application)
	default:
		d.ok(name, "commits do not wait for the connector")
	}
}

// Ages from which an open transaction is worth a warning: it delays the
// creation of a slot, or has an existing slot retain WAL.
const (
	blockingAge  = 10 * time.Second
	retainingAge = time.Hour
)

// openTransactions warns of transactions older than limit, and names their
// effect.
func (d *doctor) openTransactions(ctx context.Context, limit time.Duration, effect string) {
	const name = "postgresql.transactions"
	var list []catalog.Writer
	err := catalog.Pooled(ctx, d.conn, func() (err error) {
		list, err = readTransactions(ctx, d.conn)
		return err
	})
	if err != nil {
		d.fail(name, err)
		return
	}
	old, hidden := splitByAge(list, limit)
	switch {
	case len(old) > 0:
		d.warn(name, strings.Join(endTransactions(old), " "), "%s: %s", effect, describeTransactions(old))
	case hidden > 0:
		d.ok(name, "%d open that may write, %d of them of an age this role may not see (GRANT pg_read_all_stats)", len(list), hidden)
	default:
		d.ok(name, "none open for longer than %s", limit)
	}
}

// splitByAge returns the transactions older than limit, and how many others
// hide their age.
func splitByAge(list []catalog.Writer, limit time.Duration) (old []catalog.Writer, hidden int) {
	for _, t := range list {
		switch {
		case t.Age == nil:
			hidden++
		case *t.Age >= limit:
			old = append(old, t)
		}
	}
	return old, hidden
}
