package stream

import (
	"net/url"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// While the creation of the slot waits for a transaction, no event committed meanwhile
// will come. Neither a spare nor a start after kill -9 takes the creating process for a
// holder.
func TestASlotThatIsBeingCreatedHasNoHolder(t *testing.T) {
	d := outbox(t)
	writer := *d
	writer.connect()
	writer.exec("SET application_name = 'a long report'; BEGIN; SELECT pg_current_xact_id()")
	first := d.run()
	first.unready("the creation of slot")
	spare := d.run()
	spare.unready("a long report")
	if got := spare.role(); got != session.Starting {
		t.Errorf("the spare's role is %s", got)
	}
	if slot := spare.status().Slot; slot != d.opts.Slot {
		t.Errorf("the spare's status names slot %q", slot)
	}
	writer.exec("COMMIT")
	first.streams()
	spare.standsBy()
	eventually(t, "the spare's readiness", spare.ready)
	d.publish(1, 1)
	spare.stop()
	d.finish(first)
}

// A spare with an impossible configuration ends as run does, and is not ready before.
func TestASpareThatCouldNotRunEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(*database)
		reason string
	}{
		"table":       {func(d *database) { d.opts.Tables[0].Name = "nosuch" }, "nosuch"},
		"publication": {func(d *database) { d.opts.Publication = "cdc_outbx" }, "cdc_outbx"},
		"column":      {func(d *database) { d.event.Payload = "nosuch" }, "nosuch"},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			first := d.run().streams()
			d.publish(1, 1)
			wrong := *d
			wrong.opts.Tables = append(wrong.opts.Tables[:0:0], d.opts.Tables...)
			tt.spoil(&wrong)
			spare := wrong.run()
			eventually(t, "the end of the spare", func() bool {
				if spare.ready() {
					t.Fatal("the spare is ready")
				}
				return spare.ended()
			})
			spare.wantEnd(failure.Config, tt.reason)
			d.publish(1, 1)
			first.stop()
		})
	}
}

// A spare fit before somebody changed the catalogs has time for a repair.
func TestASpareWhoseTablesChange(t *testing.T) {
	for name, lasts := range map[string]bool{"mended": false, "for good": true} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.limits.spareLook, d.limits.unfit = 0, patience
			first := d.run().streams()
			d.publish(1, 1)
			if lasts {
				d.limits.unfit = 50 * time.Millisecond
			}
			spare := d.run()
			eventually(t, "the spare's readiness", spare.ready)
			d.exec("ALTER TABLE outbox RENAME payload TO content")
			if lasts {
				spare.wantEnd(failure.Config, "payload")
			} else {
				spare.unready("payload")
				if len(spare.health.Remedies()) == 0 {
					t.Error("without a remedy")
				}
			}
			d.exec("ALTER TABLE outbox RENAME content TO payload")
			if !lasts {
				eventually(t, "the spare's readiness", spare.ready)
				spare.stop()
			}
			d.publish(1, 1)
			d.finish(first)
		})
	}
}

// Open connections go on after a change of the password, or the loss of a right. The new
// connection of a takeover would be refused.
func TestASpareWhoseRightsChange(t *testing.T) {
	for name, c := range map[string]struct{ take, give, reason string }{
		"replication": {"NOREPLICATION", "REPLICATION", "open replication connection"},
		"login":       {"NOLOGIN", "LOGIN", "open replication connection"},
		"password":    {"PASSWORD 'other'", "PASSWORD 'pw'", "open replication connection"},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			role := "spare_" + d.text("SELECT current_database()")
			d.exec("CREATE ROLE " + role + " LOGIN SUPERUSER PASSWORD 'pw'")
			t.Cleanup(func() { pgtest.Exec(t, d.url, "DROP ROLE "+role) })
			first := d.run().streams()
			d.publish(1, 1)
			other := *d
			other.limits.spareLook, other.limits.spareLogin, other.limits.unfit = 0, 0, patience
			u := must.Get(url.Parse(d.url))(t)
			u.User = url.UserPassword(role, "pw")
			other.opts.URL = u.String()
			spare := other.run()
			eventually(t, "the spare's readiness", spare.ready)
			if c.take == "NOREPLICATION" {
				c.take += " NOSUPERUSER"
			}
			d.exec("ALTER ROLE " + role + " " + c.take)
			spare.unready(c.reason)
			d.exec("ALTER ROLE " + role + " SUPERUSER " + c.give)
			eventually(t, "the spare's readiness", spare.ready)
			spare.stop()
			first.stop()
		})
	}
}

// A spare unlike the slot's reader is no spare.
func TestASpareUnlikeItsReader(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(*database)
		reason string
	}{
		"no checkpoints":  {func(d *database) { d.opts.Checkpoint.Store = store.StoreNone }, "saves checkpoints"},
		"standard output": {func(d *database) { d.opts.IntoKafka = false }, "the sink is standard output here"},
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.opts.IntoKafka = true
			first := d.run().streams()
			d.publish(1, 1)
			eventually(t, "the reader to show itself", func() bool {
				return must.Get(catalog.ReaderFeedsKafka(t.Context(), d.conn, d.opts.Slot))(t)
			})
			spare := d.run()
			eventually(t, "the readiness of a spare that is alike", spare.ready)
			spare.stop()
			other := *d
			c.spoil(&other)
			spare = other.run()
			eventually(t, "the end of the spare", func() bool {
				if spare.ready() {
					t.Fatal("the spare is ready")
				}
				return spare.ended()
			})
			spare.wantEnd(failure.Config, c.reason)
			first.stop()
		})
	}
}
