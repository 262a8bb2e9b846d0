package stream

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

// unready returns all reasons once the instance is not ready for the reason.
func (i *instance) unready(reason string) (all string) {
	i.t.Helper()
	eventually(i.t, "readiness to say: "+reason, func() bool {
		ok, reasons := i.health.Ready()
		all = strings.Join(reasons, "\n")
		return !ok && strings.Contains(all, reason)
	})
	return all
}

// An event committed behind a large transaction of another published table does not get
// through, although changes arrive all the time.
func TestReadinessSeesAnEventBehindAnotherTable(t *testing.T) {
	d := outbox(t)
	d.limits.stalled = time.Second
	d.exec("CREATE TABLE other (v text)")
	d.exec("CREATE PUBLICATION cdc_outbox FOR ALL TABLES")
	line, d := behindProxy(t, d)
	i := d.run().streams()
	d.publish(1, 1)
	line.Set(proxy.Down, proxy.Fault{Delay: 20 * time.Millisecond}) // for each 32 KiB
	d.exec("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 30000)")
	d.insert(1, 1)
	i.unready("waits behind changes of other tables")
	if st := i.status(); st.SlotLagSeconds < d.limits.stalled.Seconds() || st.OldestUnconfirmedSeconds < d.limits.stalled.Seconds() {
		t.Errorf("the lag is %v s, the oldest is unconfirmed for %v s", st.SlotLagSeconds, st.OldestUnconfirmedSeconds)
	}
	line.Set(proxy.Down, proxy.Fault{})
	d.arrive()
	eventually(t, "readiness", i.ready)
	d.finish(i)
}

// unsendable makes a table with rows the server cannot send: the output function of a
// type fails.
func (d *database) unsendable() {
	d.t.Helper()
	for _, sql := range []string{
		"CREATE TYPE broken",
		"CREATE FUNCTION broken_in(cstring) RETURNS broken LANGUAGE internal IMMUTABLE STRICT AS 'oidin'",
		"CREATE FUNCTION broken_out(broken) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'enum_out'",
		"CREATE TYPE broken (INPUT = broken_in, OUTPUT = broken_out, INTERNALLENGTH = 4, PASSEDBYVALUE, ALIGNMENT = int4)",
		"CREATE TABLE unsendable (v broken)",
		"CREATE PUBLICATION cdc_outbox FOR ALL TABLES",
	} {
		d.exec(sql)
	}
}

// An unsendable row of another table ends each session at the same place. The connector is
// never ready in between, the ages go on, and there is a way past, leaving out the
// transaction alone.
func TestSessionsThatFailAtOnePlaceAreAStandstill(t *testing.T) {
	d := outbox(t)
	d.unsendable()
	i := d.run().streams()
	d.publish(2, 1)
	d.exec("INSERT INTO unsendable VALUES ('1')")
	d.insert(2, 1)
	reasons := i.unready("the stream has ended at")
	if !strings.Contains(reasons, "22P03") {
		t.Errorf("the reasons are %q, without the server's error", reasons)
	}
	st := i.status()
	if st.Standstill == nil || st.Standstill.Failures < standstillAfter || st.Standstill.Transaction == "" {
		t.Fatalf("the status has %+v", st.Standstill)
	}
	remedy := strings.Join(i.health.Remedies(), "\n")
	advance := fmt.Sprintf("SELECT pg_replication_slot_advance('%s', '", d.opts.Slot)
	if !strings.Contains(remedy, advance) {
		t.Errorf("the remedy is %q", remedy)
	}
	eventually(t, "the log to name the remedy", func() bool { // readiness says so a moment before
		return i.logs.FilterMessage("the stream does not get past a position").FilterField(zap.String("remedy", remedy)).Len() > 0
	})
	before := st.OldestUnconfirmedSeconds
	for range 200 { // some sessions
		if i.ready() {
			t.Fatal("ready between two sessions")
		}
		if age := i.status().OldestUnconfirmedSeconds; age < before {
			t.Fatalf("the oldest is unconfirmed for %v s after %v s", age, before)
		} else {
			before = age
		}
	}
	failed := i.health.failures()
	eventually(t, "two more sessions", func() bool { return i.health.failures() >= failed+2 })
	if i.ready() {
		t.Error("ready after more sessions")
	}
	i.stop()

	_, rest, _ := strings.Cut(remedy, advance)
	past, _, _ := strings.Cut(rest, "'")
	d.exec(advance + past + "')")
	d.store.cp.LSN, d.store.cp.Landmark = d.confirmed(), checkpoint.Landmark{Commit: d.confirmed()} // as setup --accept-gap does
	i = d.run().streams()
	d.publish(1, 1)
	eventually(t, "readiness", i.ready)
	d.finish(i)
}

// While Kafka takes nothing, events read before the transaction are not published. A way
// past then would leave them out, too.
func TestNoWayPastAStandstillBeforeWhatWasReadIsPublished(t *testing.T) {
	d := outbox(t)
	d.unsendable()
	i := d.run().streams()
	d.publish(1, 1)
	d.gate.hold()
	d.insert(2, 1)
	i.inFlight(2)
	d.exec("INSERT INTO unsendable VALUES ('1')")
	i.unready("the stream has ended at")
	const way = "SELECT pg_replication_slot_advance("
	if remedy := strings.Join(i.health.Remedies(), "\n"); strings.Contains(remedy, way) {
		t.Errorf("2 events are not published, and the remedy passes them over: %s", remedy)
	}
	d.gate.open()
	eventually(t, "the way past it", func() bool { return strings.Contains(strings.Join(i.health.Remedies(), "\n"), way) })
	i.stop()
}

// A pipeline begun anew in the same process goes on with the age of the waiting log.
func TestAgesOutliveAPipelineThatBeginsAnew(t *testing.T) {
	d := outbox(t)
	d.opts.DrainTimeout = time.Millisecond
	first := d.run().streams()
	d.publish(1, 1)
	d.gate.hold()
	d.insert(1, 1)
	d.gate.reached(t)
	eventually(t, "an event that waits", func() bool { return first.status().OldestUnconfirmedSeconds > 0.5 })
	before, past := first.status().OldestUnconfirmedSeconds, first.health.Past()
	first.stop()

	second := d.startWith(Parts{Store: d.store, Sink: d.gate, Past: past}).streams()
	if age := second.status().OldestUnconfirmedSeconds; age < before {
		t.Errorf("what waits has an age of %v s, and had one of %v s", age, before)
	}
	d.gate.open()
	d.arrive()
	d.finish(second)
}
