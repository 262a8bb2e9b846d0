package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Under load a fleet's listing gets another tenant, changes one, and loses one for a while:
// each takes place within the running members, and the other pipelines keep their connections.
func TestE2EFleetFollowsAListing(t *testing.T) {
	for _, delivery := range []string{"at_least_once", "exactly_once"} {
		t.Run(delivery, func(t *testing.T) {
			w := newListedFleet(t, delivery)
			w.list("p0", "p1", "p2", "p3", "p4", "p5")
			w.run("setup") // so the slot of p5 has all events
			w.list("p0", "p1", "p2", "p3", "p4")
			w.start("m1")
			w.start("m2")
			w.await("shares of five", func(v *fleet.View) bool {
				return len(v.Members) == 2 && v.Members[0].Pipelines*v.Members[1].Pipelines == 2*3
			})
			await.Until(t, "readers of five slots", func() bool { return len(w.pids()) == 5 })
			w.begin()
			w.arrive("p0", "p1", "p2", "p3", "p4")
			w.phase("start")

			w.undisturbed([]string{"p5"}, func() {
				w.list("p0", "p1", "p2", "p3", "p4", "p5")
				w.await("a share of the new tenant", func(v *fleet.View) bool { return w.shares(v, 3, 3) })
				w.flows()
			})
			w.phase("another tenant")

			w.undisturbed([]string{"p1"}, func() {
				before := w.pids()["p1"]
				w.lingers["p1"] = "2ms"
				w.list("p0", "p1", "p2", "p3", "p4", "p5")
				await.Until(t, "another reader of p1", func() bool { now := w.pids()["p1"]; return now != 0 && now != before })
				w.flows()
				w.await("the change in place", func(v *fleet.View) bool {
					return len(v.Moves) > 0 && v.Moves[0].Pipeline == "p1" && v.Moves[0].From == v.Moves[0].To && v.Moves[0].Reason == placement.Rollout
				})
			})
			w.phase("a changed tenant")

			w.undisturbed([]string{"p2"}, func() {
				w.list("p0", "p1", "p3", "p4", "p5")
				await.Until(t, "no reader of p2", func() bool { return w.pids()["p2"] == 0 })
				must.OK(t, os.WriteFile(w.listing(), []byte("name,linger\np0"), 0o600))
				for _, m := range w.members {
					m.awaitLog("a source of pipelines cannot be followed")
				}
				w.arrive("p0", "p1", "p3", "p4", "p5")
				w.list("p0", "p1", "p2", "p3", "p4", "p5")
				w.await("all tenants again", func(v *fleet.View) bool { return w.shares(v, 3, 3) })
				w.flows()
			})
			w.phase("a tenant removed and put back")

			w.finish(delivery == "exactly_once")
			for _, m := range w.members {
				m.stop()
			}
		})
	}
}

// listedFleet is a fleet with a listing of pipelines.
type listedFleet struct {
	*fleetWorld
	tag     string            // of slots
	lingers map[string]string // of pipelines, instead of 4ms
}

func newListedFleet(t *testing.T, delivery string) *listedFleet {
	w := &listedFleet{fleetWorld: newFleetWorld(t, delivery), lingers: map[string]string{}}
	w.tag = strings.ReplaceAll(must.Get(pgx.ParseConfig(w.url))(t).Database, "-", "_")
	config, _, _ := strings.Cut(string(must.Get(os.ReadFile(w.path()))(t)), "pipelines:\n")
	config += fmt.Sprintf(`
discovery: {names_file: tenants.csv, interval: 500ms}
pipeline_template:
  source: {tables: ["public.%%{name}"], slot: "%s_%%{name}", publication: "%[1]s_%%{name}"}
  sink: {kafka: {linger: "%%{linger}"}}
`, w.tag)
	must.OK(t, os.WriteFile(w.path(), []byte(config), 0o600))
	return w
}

func (w *listedFleet) listing() string { return filepath.Join(w.dir, "tenants.csv") }

// list writes the listing.
func (w *listedFleet) list(names ...string) {
	w.t.Helper()
	text := "name,linger\n"
	for _, name := range names {
		linger := w.lingers[name]
		if linger == "" {
			linger = "4ms"
		}
		text += name + "," + linger + "\n"
	}
	must.OK(w.t, os.WriteFile(w.listing(), []byte(text), 0o600))
}

// pids are the readers of slots, by pipeline.
func (w *listedFleet) pids() map[string]int {
	w.t.Helper()
	sql := connect(w.t, w.url)
	defer closeConn(sql)
	rows := must.Get(sql.Query(w.t.Context(), "SELECT slot_name, active_pid FROM pg_replication_slots WHERE active AND database = current_database()"))(w.t)
	all := map[string]int{}
	var slot string
	var pid int
	must.Get(pgx.ForEachRow(rows, []any{&slot, &pid}, func() error {
		all[strings.TrimPrefix(slot, w.tag+"_")] = pid
		return nil
	}))(w.t)
	return all
}

// undisturbed checks that all readers stay, except for those of the named pipelines.
func (w *listedFleet) undisturbed(except []string, change func()) {
	w.t.Helper()
	others := func() map[string]int {
		all := w.pids()
		maps.DeleteFunc(all, func(name string, _ int) bool { return slices.Contains(except, name) })
		return all
	}
	before := others()
	change()
	if after := others(); !maps.Equal(after, before) {
		w.t.Errorf("readers %v, and then %v", before, after)
	}
}

// arrive waits for further events of the pipelines.
func (w *listedFleet) arrive(names ...string) {
	w.t.Helper()
	since := time.Now()
	await.Until(w.t, "events", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return !slices.ContainsFunc(names, func(name string) bool { return w.arrived[name].Before(since) })
	})
}
