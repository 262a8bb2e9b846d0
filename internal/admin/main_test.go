package admin

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

func TestMain(m *testing.M) {
	routePatience = patience // a busy machine may stop us for longer than an operator waits
	pgtest.Main(m)
}

// patience bounds every wait, for slow and busy machines.
const patience = time.Minute

// fixture is a configuration with a separate database, the checkpoint in a file
// and events on stdout.
type fixture struct {
	*config.Config
	t    *testing.T
	conn *pgx.Conn
}

// empty is a fixture with an empty database, sound the same after setup.
func empty(t *testing.T) *fixture { return newFixture(t, pgtest.Shared(t).NewDatabase(t)) }

func sound(t *testing.T) *fixture {
	f := empty(t)
	f.setup()
	return f
}

func newFixture(t *testing.T, url string) *fixture {
	t.Helper()
	cfg := config.Default()
	cfg.Source.URL = setting.Secret(url)
	cfg.Source.Slot = slotName(t)
	cfg.Sink = config.Sink{Stdout: &config.Stdout{}}
	cfg.HTTP.Listen = "" // where somebody else may answer
	cfg.Checkpoint.Store = store.StoreFile
	cfg.Checkpoint.Path = filepath.Join(t.TempDir(), "checkpoint.json")
	f := &fixture{Config: &cfg, t: t}

	f.conn = must.Get(catalog.Connect(f.ctx(), url))(t)
	f.exec("RESET search_path") // statements of tests are an application's
	t.Cleanup(func() { catalog.Close(f.conn) })
	return f
}

// slotName is unique on the server the package's tests share.
func slotName(t *testing.T) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, t.Name())
	return name[max(0, len(name)-40):]
}

func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	f.t.Cleanup(cancel)
	return ctx
}

func (f *fixture) exec(statements ...string) {
	f.t.Helper()
	for _, sql := range statements {
		if _, err := f.conn.Exec(f.ctx(), sql); err != nil {
			f.t.Fatalf("%s: %v", sql, err)
		}
	}
}

func (f *fixture) setup() {
	f.t.Helper()
	if steps, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium}); err != nil {
		f.t.Fatalf("setup: %v\n%v", err, steps)
	}
}

// forget removes setup's checkpoint.
func (f *fixture) forget() {
	f.t.Helper()
	if err := os.Remove(f.Checkpoint.Path); !errors.Is(err, fs.ErrNotExist) {
		must.OK(f.t, err)
	}
}

// wantSetup runs setup and wants the steps.
func (f *fixture) wantSetup(opts SetupOptions, did ...string) {
	f.t.Helper()
	steps := must.Get(Setup(f.ctx(), f.Config, opts))(f.t)
	wantSteps(f.t, steps, did...)
}

// wantTeardown runs teardown --yes and wants the steps.
func (f *fixture) wantTeardown(did ...string) {
	f.t.Helper()
	steps := must.Get(Teardown(f.ctx(), f.Config, true))(f.t)
	wantSteps(f.t, steps, did...)
}

// wantCheck asserts a finding of check.
func (f *fixture) wantCheck(name string, outcome Outcome, words string) Finding {
	f.t.Helper()
	return wantFinding(f.t, Check(f.ctx(), f.Config), name, outcome, words)
}

// wantNothingWrong asserts that check neither fails nor warns of anything but the
// log's missing limit, PostgreSQL's default.
func (f *fixture) wantNothingWrong(but ...string) {
	f.t.Helper()
	for _, found := range Check(f.ctx(), f.Config).Findings {
		if found.Outcome == Fail || found.Outcome == Warn && !slices.Contains(append(but, "postgresql.max_slot_wal_keep_size"), found.Name) {
			f.t.Errorf("check finds %+v", found)
		}
	}
}

// insert adds a good row to the outbox.
func (f *fixture) insert(aggregate, key, payload string) {
	f.t.Helper()
	must.Get(f.conn.Exec(f.ctx(),
		`INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ($1, $2, 'Placed', $3)`, aggregate, key, payload))(f.t)
}

func (f *fixture) slot() (catalog.Slot, bool) {
	f.t.Helper()
	slot, ok, err := catalog.ReadSlot(f.ctx(), f.conn, f.Source.Slot)
	must.OK(f.t, err)
	return slot, ok
}

func (f *fixture) wantSlot() {
	f.t.Helper()
	if _, ok := f.slot(); !ok {
		f.t.Error("the slot is gone")
	}
}

// publication reads the fingerprint a checkpoint would have now.
func (f *fixture) publication() string {
	f.t.Helper()
	p, ok, err := catalog.ReadPublication(f.ctx(), f.conn, f.Source.Publication)
	if err != nil || !ok {
		f.t.Fatalf("publication: found %v, %v", ok, err)
	}
	return p.Fingerprint(f.Config.Source.Tables)
}

// save stores the checkpoint of a connector in step with the slot.
func (f *fixture) save() checkpoint.Checkpoint {
	f.t.Helper()
	slot, _ := f.slot()
	return f.saveAt(slot.ConfirmedFlush)
}

// saveAt saves a checkpoint at lsn.
func (f *fixture) saveAt(lsn pg.LSN) checkpoint.Checkpoint {
	f.t.Helper()
	server := must.Get(catalog.ReadServer(f.ctx(), f.conn))(f.t)
	cp := checkpoint.Checkpoint{
		LSN: lsn, SystemID: server.SystemID, Timeline: server.Timeline, Database: server.Database,
		Slot: f.Source.Slot, Publication: f.publication(), SavedAt: time.Now(), Epoch: 3,
	}
	f.put(cp)
	return cp
}

func (f *fixture) stored() *checkpoint.Checkpoint {
	f.t.Helper()
	v := &view{}
	must.OK(f.t, loadCheckpoint(f.ctx(), f.Config, v))
	return v.stored
}

// hold streams from the slot, as a running connector does.
func (f *fixture) hold() {
	f.t.Helper()
	stream := f.open()
	f.t.Cleanup(func() { catalog.Close(stream) })
}

// open streams from the slot.
func (f *fixture) open() *wal.Stream {
	f.t.Helper()
	session := must.Get(newSession(f.Config))(f.t)
	session.conn = f.conn
	repl := must.Get(session.replication(f.ctx()))(f.t)
	return must.Get(session.stream(f.ctx(), repl, f.Source.Slot, 0, 0))(f.t)
}

// leave ends a stream and waits for the slot's release: the server answers the
// end of the copy before releasing the slot.
func (f *fixture) leave(s *wal.Stream) {
	f.t.Helper()
	if err := s.Close(f.ctx()); err != nil {
		f.t.Errorf("close the stream: %v", err)
	}
	pgtest.Await(f.t, f.conn, `SELECT NOT active FROM pg_replication_slots WHERE slot_name = $1`, f.Source.Slot)
}

// wantClass asserts an error of a class with a remedy and, in its text, words.
func wantClass(t *testing.T, err error, class failure.Class, words ...string) {
	t.Helper()
	if err == nil || failure.ClassOf(err) != class || failure.RemedyOf(err) == "" {
		t.Fatalf("error %v of class %v with remedy %q; want class %v and a remedy", err, failure.ClassOf(err), failure.RemedyOf(err), class)
	}
	must.Contain(t, err.Error(), words...)
}

func wantSteps(t *testing.T, steps Steps, want ...string) {
	t.Helper()
	var got []string
	for _, s := range steps {
		got = append(got, s.Object+" "+s.Action)
	}
	if g, w := strings.Join(got, ", "), strings.Join(want, ", "); g != w {
		t.Errorf("steps: %s\nwant:  %s", g, w)
	}
}

// asRole changes the user of a connection URL.
func asRole(u setting.Secret, role, password string) setting.Secret {
	parsed, err := url.Parse(u.Reveal())
	if err != nil {
		panic(err)
	}
	parsed.User = url.UserPassword(role, password)
	return setting.Secret(parsed.String())
}
