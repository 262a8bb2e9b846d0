package pipeline

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
)

// A process of a fleet runs its share. A pipeline is held from its start to the end of its
// drain, with the specification that the fleet has given, also when the file has a newer.
func TestSharesOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeSet(t, true)
		s := newShares(f.Set)
		a, b, next := spec("a", "s1", "t"), spec("b", "s2", "t"), spec("a", "s1", "new")
		place := func(p config.Pipeline) placement.Place {
			return placement.Place{Pipeline: p.Name, Spec: p.Spec(), Rate: 5}
		}
		hold := func(p config.Pipeline, stopping bool) placement.Hold {
			return placement.Hold{Pipeline: p.Name, Spec: p.Spec(), Rate: 5, Stopping: stopping}
		}
		wantHolds := func(want ...placement.Hold) {
			t.Helper()
			synctest.Wait()
			got := s.Holds()
			for i := range got {
				got[i].Rate, got[i].Starting = 5, false // they change with time
			}
			if !slices.Equal(got, want) {
				t.Errorf("holds %+v, want %+v", got, want)
			}
		}
		s.offer([]config.Pipeline{a, b}, time.Now())
		wantHolds()

		s.Run([]placement.Place{place(a), place(b)})
		wantHolds(hold(a, false), hold(b, false))
		<-f.began
		<-f.began

		later := time.Now().Add(time.Minute)
		s.offer([]config.Pipeline{next}, later)
		if o := s.Offers(); len(o) != 1 || o[0].Spec != next.Spec() || o[0].Loaded != later.Unix() {
			t.Errorf("offers %+v", o)
		}
		s.Run([]placement.Place{place(a)}) // the file's turn has not come
		wantHolds(hold(a, false), hold(b, true))
		f.letGo <- nil
		<-f.ended
		wantHolds(hold(a, false))

		s.Run([]placement.Place{place(next)})
		changing := hold(next, false)
		changing.Changing = true
		wantHolds(changing)
		f.letGo <- nil
		<-f.ended
		wantHolds(hold(next, false))
		if began := <-f.began; began != "a new" {
			t.Errorf("began %s", began)
		}
		s.Drop()
		wantHolds(hold(next, true))
		f.letGo <- nil
		wantHolds()
		s.Run(nil)
		if len(s.known) != 1 || len(s.specs) != 1 {
			t.Errorf("%d specifications are kept after all", len(s.known))
		}
		must.OK(t, f.stop())
	})
}

// A pipeline counts as starting until it flows, or has had its time.
func TestAPipelineOfAFleetStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeSet(t, true)
		flow := make(chan struct{})
		f.run = func(ctx context.Context, p *pipeline) error {
			if p.name == "a" {
				<-flow
				p.health.set(well{})
			}
			<-ctx.Done()
			return nil
		}
		s := newShares(f.Set)
		a, b := spec("a", "s1", "t"), spec("b", "s2", "t")
		s.offer([]config.Pipeline{a, b}, time.Now())
		s.Run([]placement.Place{{Pipeline: "a", Spec: a.Spec()}, {Pipeline: "b", Spec: b.Spec()}})
		want := func(starting ...bool) {
			t.Helper()
			synctest.Wait()
			var got []bool
			for _, h := range s.Holds() {
				got = append(got, h.Starting)
			}
			if !slices.Equal(got, starting) {
				t.Errorf("starting: %v, want %v", got, starting)
			}
		}
		want(true, true)
		close(flow)
		want(false, true)
		<-time.After(startPatience)
		want(false, false)
		must.OK(t, f.stop())
	})
}

// Another look at the same configuration changes nothing, however often.
func TestSharesOfManyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeSet(t, true)
		s := newShares(f.Set)
		a := spec("a", "s1", "t")
		s.offer([]config.Pipeline{a}, time.Unix(1, 0))
		s.Run([]placement.Place{{Pipeline: "a", Spec: a.Spec()}})
		<-f.began
		for n := range 10 {
			s.offer([]config.Pipeline{spec("a", "s1", "t"), spec("b", "s2", "t")}, time.Unix(int64(2+n), 0))
			synctest.Wait()
		}
		if o := s.Offers(); o[0].Loaded != 1 || o[1].Loaded != 2 {
			t.Errorf("offers %+v", o)
		}
		if len(s.known) != 2 || len(s.specs) != 3 { // a as read first, and both as read last
			t.Errorf("%d specifications and %d configurations are kept", len(s.known), len(s.specs))
		}
		s.Run(nil)
		if h := s.Holds(); len(h) != 1 || h[0].Spec != a.Spec() || !h[0].Stopping {
			t.Errorf("holds %+v", h)
		}
		f.letGo <- nil
		must.OK(t, f.stop())
	})
}

// Others may have a pipeline in the midst of its drain, too, and wait for the slot.
func TestADropHurriesADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeSet(t, true)
		f.run = func(ctx context.Context, _ *pipeline) error {
			<-ctx.Done()
			return session.Drain(ctx, nil, time.Hour, func() []string { return nil })
		}
		f.Apply([]config.Pipeline{spec("a", "s1", "t")})
		synctest.Wait()
		f.Apply(nil)
		synctest.Wait()
		began := time.Now()
		f.Drop()
		must.OK(t, f.Settled(t.Context()))
		if took := time.Since(began); took > time.Minute { // in fake time
			t.Errorf("the drain went on for %s", took)
		}
		synctest.Wait() // until Run has forgotten the pipeline's error
		must.OK(t, f.stop())
	})
}

// A database that is down takes no member out while other pipelines of the member flow. A member
// with nothing else is not ready, and a member with nothing is, as it could take some.
func TestAMemberIsReadyWhileAnyPipelineIs(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	broker := kafkatest.Start(t)
	pgtest.Exec(t, db, `CREATE TABLE outbox (id bigserial PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)`)
	d := discover(t, fmt.Sprintf(`
sink: {kafka: {brokers: [%q], create_topics: true}}
http: {listen: 127.0.0.1:0}
fleet: {group: readiness, member: m1}`, broker.Brokers[0]))
	down := must.Get(freeport.TakeAddress())(t)
	tag := must.Get(pgx.ParseConfig(db))(t).Database
	d.write("well", fmt.Sprintf("pipelines: {well: {source: {url: %q, slot: %s, publication: readiness}}}", db, strings.ReplaceAll(tag, "-", "_")))
	d.write("down", fmt.Sprintf("pipelines: {down: {source: {url: %q}}}", "postgres://cdc@"+down+"/app"))
	c := start(t, *d.load())
	tells := func(ready bool, of, not string) func() bool {
		return func() bool {
			told := body(c.base + "/readyz")
			return c.ready() == ready && strings.Contains(told, of) && !strings.Contains(told, not)
		}
	}
	await.Until(t, "a ready member, with the reason against the other pipeline", tells(true, "pipeline down: ", "pipeline well: "))
	d.write("well", "pipelines: {}")
	await.Until(t, "a member without any pipeline that flows", tells(false, "pipeline down: ", "pipeline well: "))
	d.write("down", "pipelines: {}")
	await.Until(t, "a member without pipelines", tells(true, `"reasons": []`, "pipeline"))
	must.OK(t, c.stop())
}

func TestRate(t *testing.T) {
	r := &rate{value: 100}
	at := time.Unix(0, 0)
	acked := int64(0)
	for range 600 {
		r.count(acked, at)
		at, acked = at.Add(time.Second), acked+10
	}
	if math.Round(r.value) != 10 {
		t.Errorf("%.1f events a second after ten minutes with 10", r.value)
	}
	before := r.value
	r.count(3, at) // of a pipeline started anew
	if r.value != before {
		t.Errorf("%.1f after a new start", r.value)
	}
}
