package admin

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// slotPatience is how long the creation of a slot may wait for running
// transactions.
const slotPatience = 30 * time.Second

// SetupOptions are the choices of Setup beside the configuration.
type SetupOptions struct {
	Schema Schema // of a table to create; required
	Role   string // a role to create or complete; empty: none
	Writer string // a role of the service writing events; empty: none
	// Password is set for Role; empty: none.
	Password setting.Secret
	Notify   bool // poll mode's trigger even where it breaks PREPARE TRANSACTION
}

// Step is one object setup or teardown looked after.
type Step struct {
	Object string `json:"object"` // table, function, index, trigger, publication, role, slot, checkpoint or claims
	Name   string `json:"name"`
	Action string `json:"action"` // the action or finding: created, changed, exists, ready, dropped, kept, missing
	Detail string `json:"detail,omitempty"`
}

// Steps is the report of setup and teardown, in order.
type Steps []Step

// WriteText prints a line for each step.
func (s Steps) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, st := range s {
		fmt.Fprintln(tw, strings.TrimRight(st.Object+"\t"+st.Name+"\t"+st.Action+"\t"+st.Detail, "\t"))
	}
	return tw.Flush()
}

// setup is a single run of Setup.
type setup struct {
	*session
	opts   SetupOptions
	exists map[pg.Table]bool // of the tables, before anything is made
	store  checkpoint.Store
	steps  Steps
}

// Setup creates everything missing for the connector to run: outbox tables or,
// in message mode, functions writing messages, publication, checkpoint store, the
// table of claim_check, role and slot. Its SQL is that of Script. Setup may be repeated. It first
// makes sure of every step, and otherwise changes nothing. On an error the
// steps tell the progress.
func Setup(ctx context.Context, cfg *config.Config, opts SetupOptions) (Steps, error) {
	session, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer session.close()

	s := &setup{session: session, opts: opts}
	// The publication must exist before the slot's position; the role's grants
	// need the tables; a slot remembered by a checkpoint is not created.
	steps := []func(context.Context) error{
		s.primary, s.able, s.ensureTables, s.ensureEmit, s.ensurePublication, s.openCheckpoint, s.ensureClaims, s.ensureRole, s.ensureWriter, s.ensureSlot,
	}
	if s.polls() {
		steps = []func(context.Context) error{s.primary, s.able, s.ensureTables, s.ensurePolling, s.ensureClaims, s.ensurePollRole, s.ensureWriter}
	}
	for _, step := range steps {
		if err = step(ctx); err != nil {
			break
		}
	}
	if s.store != nil {
		s.store.Close()
	}
	return s.steps, err
}

func (s *setup) done(object, name, action, detail string) {
	s.steps = append(s.steps, Step{object, name, action, detail})
}

func (s *setup) ensureTables(ctx context.Context) error {
	for _, t := range s.cfg.Source.Tables {
		if s.exists[t] {
			s.done("table", t.String(), "exists", "")
			continue
		}
		if err := s.execute(ctx, createSchema(t), s.opts.Schema.createTable(s.cfg, t)); err != nil {
			return fmt.Errorf("create table %s: %w", t, err)
		}
		detail, err := s.namesake(ctx, t)
		if err != nil {
			return err
		}
		s.done("table", t.String(), "created", string(s.opts.Schema)+" columns"+detail)
	}
	return nil
}

// namesake warns of an existing table with the name of the table to create.
func (s *setup) namesake(ctx context.Context, t pg.Table) (warning string, err error) {
	other, err := catalog.FindNamesake(ctx, s.conn, t)
	if err != nil || !other.SameName {
		return "", err
	}
	return "; WARNING: there is table " + other.Near.String() + ", too. If the application writes to that one: " +
		catalog.InSourceTables(other.Near) + "; and drop the new one", nil
}

// ensurePublication creates the publication or adds missing tables. Other faults
// of an existing publication are the operator's to mend.
func (s *setup) ensurePublication(ctx context.Context) error {
	from := s.source()
	before, existed, err := catalog.ReadPublication(ctx, s.conn, from.Publication)
	if err != nil {
		return err
	}
	if err := s.execute(ctx, catalog.EnsurePublicationSQL(from.Publication, from.Tables)); err != nil {
		return fmt.Errorf("set up publication %q: %w", from.Publication, catalog.ClassifyPublicationError(err))
	}
	var added []string
	for _, t := range from.Tables {
		if !before.Publishes(t) {
			added = append(added, t.String())
		}
	}
	action, detail := "exists", ""
	switch {
	case !existed:
		action, detail = "created", strings.Join(added, ", ")
	case len(added) > 0:
		action, detail = "changed", "added "+strings.Join(added, ", ")
	}
	if existed {
		if detail, err = s.shared(ctx, detail); err != nil {
			return err
		}
	}
	var v catalog.View
	if err := v.ReadPublication(ctx, s.conn, from); err != nil {
		return err
	}
	if v.Unfit() == nil {
		if detail, err = s.movable(ctx, &v, detail); err != nil {
			return err
		}
	}
	s.done("publication", from.Publication, action, detail)
	return v.Unfit()
}

// movable adds to detail that rows moving between partitions would be published
// again.
func (s *setup) movable(ctx context.Context, v *catalog.View, detail string) (string, error) {
	for _, info := range v.Tables {
		warning, err := s.movesUnseen(ctx, *v.Publication, info)
		if err != nil {
			return detail, err
		}
		if warning != nil {
			detail = strings.TrimPrefix(detail+"; WARNING: "+warning.Error()+": "+failure.RemedyOf(warning), "; ")
		}
	}
	return detail, nil
}

// shared adds, for a publication older than our slot, that somebody else may
// read it.
func (s *setup) shared(ctx context.Context, detail string) (string, error) {
	_, ours, err := catalog.ReadSlot(ctx, s.conn, s.cfg.Source.Slot)
	if err != nil || ours {
		return detail, err
	}
	slots, err := catalog.OtherSlots(ctx, s.conn, s.cfg.Source.Slot)
	if err != nil || len(slots) == 0 {
		return detail, err
	}
	warning := "WARNING: slots of this database that may read it, too, depend on it from now on, and this connector on their owners: " + strings.Join(slots, ", ") +
		"; name another source.publication to keep them apart"
	return strings.TrimPrefix(detail+"; "+warning, "; "), nil
}

func (s *setup) ensureRole(ctx context.Context) error {
	if s.opts.Role == "" {
		return nil
	}
	cfg := *s.cfg
	if cfg.Checkpoint.Store == store.StorePostgres {
		var err error
		if cfg.Checkpoint.Table, _, err = store.LocateTable(ctx, s.conn, cfg.Checkpoint.Table); err != nil {
			return err
		}
	}
	return s.giveRole(ctx, grants(&cfg, s.opts.Role))
}

// giveRole creates or completes the role.
func (s *setup) giveRole(ctx context.Context, grants []string) error {
	role := s.opts.Role
	exists, err := catalog.RoleExists(ctx, s.conn, role)
	if err != nil {
		return err
	}
	password, err := passwordSQL(role, s.opts.Password)
	if err != nil {
		return err
	}
	if err := s.execute(ctx, append(roleSQL(role, roleAttributes(s.cfg), grants), password)...); err != nil {
		return fmt.Errorf("set up role %q: %w", role, err)
	}
	action, detail := "exists", "privileges granted"
	if !exists {
		action, detail = "created", `without a password; set one with: \password `+role
	}
	if password != "" {
		detail = "privileges granted, password set"
	}
	s.done("role", role, action, detail)
	return nil
}

// ensureWriter gives the role of the service the rights to write events.
func (s *setup) ensureWriter(ctx context.Context) error {
	if s.opts.Writer == "" {
		return nil
	}
	schema := emitSchema
	if s.cfg.Source.Mode == config.ModeMessage {
		var err error
		if _, schema, err = emitFunctions(s.cfg)[0].find(ctx, s.conn, s.cfg); err != nil {
			return err
		}
	}
	if err := s.execute(ctx, writerGrants(s.cfg, s.opts.Writer, schema)...); err != nil {
		return fmt.Errorf("grant to %q: %w", s.opts.Writer, err)
	}
	s.done("writer", s.opts.Writer, "ready", "may write events")
	return nil
}

// openCheckpoint creates the checkpoint's table, if left to it by reachCheckpoint.
func (s *setup) openCheckpoint(ctx context.Context) error {
	if s.store == nil {
		if err := s.openStore(ctx); err != nil {
			return err
		}
	}
	s.done("checkpoint", storeName(s.cfg), "ready", "")
	return nil
}

// openStore opens the checkpoint store, and creates a missing topic or table.
func (s *setup) openStore(ctx context.Context) (err error) {
	if s.store, err = wiring.OpenStore(ctx, s.cfg); err != nil {
		return err
	}
	return storeWritable(ctx, s.cfg, s.store, store.Writable)
}

func (s *setup) ensureSlot(ctx context.Context) error {
	name := s.cfg.Source.Slot
	v, err := s.view(ctx, s.store)
	if err != nil {
		return err
	}
	if v.elsewhere() {
		v.stored, v.mismatch = nil, nil // of a database that was only set up
	}
	if v.Exists {
		s.done("slot", name, "exists", "confirmed up to "+v.Slot.ConfirmedFlush.String()+s.unnoted(v)+s.notCopied(v))
	}
	switch {
	case v.mismatch != nil: // run would refuse it
		return v.mismatch
	case v.Exists && v.stored != nil && v.stored.Made: // the configuration may have changed
		return s.note(ctx, v, v.stored.LSN, v.stored.Horizon)
	case v.Exists:
		return nil
	}
	if s.cfg.Source.Snapshot == config.SnapshotInitial {
		return s.leaveSlot(ctx, v)
	}
	if err := s.promiseDelivery(ctx, v.server); err != nil {
		return err
	}
	at, err := s.createSlot(ctx)
	if err != nil {
		return err
	}
	detail := "at " + at.String()
	manages, err := catalog.Patroni(ctx, s.conn)
	if manages && v.server.Version < 170000 {
		detail += "; WARNING: " + catalog.PatroniDrops + ": " + catalog.PatroniKeeps(name, v.server.Database)
	}
	s.done("slot", name, "created", detail)
	if err != nil || manages { // Patroni may drop this slot, and make another nobody has missed
		return err
	}
	return s.note(ctx, v, at, v.Horizon)
}

// note has the checkpoint know the new slot, so the first run notices a drop or
// a recreation until then.
func (s *setup) note(ctx context.Context, v *view, at pg.LSN, horizon uint64) error {
	if s.cfg.Checkpoint.Store == store.StoreNone {
		return nil
	}
	cp := s.checkpointAt(v, at)
	cp.Epoch, cp.Made, cp.Horizon = v.epoch+2, true, horizon // behind the Beginning
	if err := saveCheckpoint(ctx, s.store, cp); err != nil {
		return &failure.Error{Class: failure.ClassOf(err), Remedy: "see to the checkpoint store; then `cdc-outbox adopt --yes` notes the slot",
			Err: fmt.Errorf("the slot is made, and not noted in the checkpoint: %w", err)}
	}
	return nil
}

// unnoted is the remark on a slot unknown to all checkpoints.
func (s *setup) unnoted(v *view) string {
	if v.stored != nil || v.begun != nil || v.Slot.Active || s.cfg.Checkpoint.Store == store.StoreNone {
		return ""
	}
	return "; no checkpoint knows it: `cdc-outbox adopt --yes` notes it, so that the first run notices if it is dropped until then"
}

// notCopied is the remark on a slot that run will make a failover slot. Setup alters no
// slot: somebody else may read it.
func (s *setup) notCopied(v *view) string {
	if s.cfg.Source.Failover != config.FailoverAlways || v.server.Major() < catalog.FailoverSlots || v.Slot.Failover {
		return ""
	}
	return "; no failover slot yet: the next start of run makes it one (source.failover: always)"
}

// leaveSlot leaves the slot to the first run, which publishes a snapshot. The
// snapshot must be of the slot's first position, and ends with the session
// creating the slot: of a slot made here, rows written before the first run
// would be published twice, and rows deleted before it never.
//
// Where another slot already reads the same, the store says that this slot is meant.
func (s *setup) leaveSlot(ctx context.Context, v *view) error {
	if !s.cfg.Source.Create {
		return missingSlot(s.cfg)
	}
	slot, err := s.session.unnoted(ctx, v, s.store)
	if err != nil {
		return err
	}
	second, err := slot.Refused(ctx, s.conn)
	if err != nil {
		return err
	}
	if second != nil {
		if err := saveCheckpoint(ctx, s.store, checkpoint.Beginning(v.server, s.cfg.Source.Slot)); err != nil {
			return fmt.Errorf("note that a slot is to be created: %w", err)
		}
	}
	s.done("slot", s.cfg.Source.Slot, "left", "to the first run, which creates it together with the snapshot (source.snapshot: initial)")
	return nil
}

// missingSlot is the error of a missing slot, not to be created by run.
func missingSlot(cfg *config.Config) error {
	remedy := "run `cdc-outbox setup`, or set source.create to true"
	if cfg.Source.Snapshot == config.SnapshotInitial {
		remedy = catalog.SnapshotWithSlot
	}
	return failure.Configf(remedy, "slot %q does not exist, and source.create is false", cfg.Source.Slot)
}

// promiseDelivery notes, for exactly-once delivery, that nothing was delivered
// yet. It is called before there is a slot: nobody can tell later whether a slot
// without a checkpoint was read.
func (s *setup) promiseDelivery(ctx context.Context, server catalog.Server) error {
	if !wiring.ExactlyOnce(s.cfg) {
		return nil
	}
	if err := saveCheckpoint(ctx, s.store, checkpoint.Beginning(server, s.cfg.Source.Slot)); err != nil {
		return fmt.Errorf("note that a slot is created: %w", err)
	}
	return nil
}

// createSlot creates the configured slot and returns the first position. After
// too long a wait for other transactions, the error names them.
func (s *session) createSlot(ctx context.Context) (pg.LSN, error) {
	at, _, err := s.createSlotWith(ctx, false)
	return at, err
}

// createSlotWith is createSlot, if asked for with the snapshot of the position, to
// be released.
func (s *session) createSlotWith(ctx context.Context, snapshot bool) (pg.LSN, *catalog.HeldSnapshot, error) {
	server, err := catalog.ReadServer(ctx, s.conn)
	if err != nil {
		return 0, nil, err
	}
	repl, err := s.replication(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer catalog.Close(repl)

	waiting, cancel := context.WithTimeout(ctx, slotPatience)
	defer cancel()
	defer s.patient(waiting, repl, nil)()
	at, name, err := catalog.CreateSlot(waiting, repl, s.cfg.Source.Slot, server.Version, catalog.SlotOptions{ExportSnapshot: snapshot, Failover: true})
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return 0, nil, slotBlocked(ctx, s.conn, s.cfg.Source.Slot)
	}
	if err != nil || !snapshot {
		return at, nil, err
	}
	held, err := catalog.HoldSnapshot(ctx, s.cfg.Source.URL.Reveal(), name)
	return at, held, err
}

func slotBlocked(ctx context.Context, conn *pgx.Conn, name string) error {
	open, err := readTransactions(ctx, conn)
	if err != nil {
		return fmt.Errorf("create slot %q: no answer within %s: %w", name, slotPatience, err)
	}
	return &failure.Error{
		Class:  failure.Transient,
		Remedy: "wait for them or end them: " + strings.Join(endTransactions(open), " "),
		Err: fmt.Errorf("create slot %q: not done within %s, as it waits for %s", name, slotPatience,
			describeTransactions(open)),
	}
}
