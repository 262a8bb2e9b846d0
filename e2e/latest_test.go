package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// TestE2ELatestRecordsStayLast takes the slot away from an unaware instance,
// again and again, and lets the instance come back when the successor has
// published everything: the last record of each key is the key's latest (failure
// mode 138).
func TestE2ELatestRecordsStayLast(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration // wal_sender_timeout
		vanish  func(d *duel) (comeBack func())
		// open: the lease cannot help, and how much comes late is only told.
		open bool
	}{
		"suspended": {timeout: 2 * time.Second, vanish: func(d *duel) func() {
			return d.suspend(d.holder)
		}},
		// The slot is free at once.
		"suspended and the walsender ended": {timeout: 4 * time.Second, vanish: func(d *duel) func() {
			comeBack := d.suspend(d.holder)
			d.exec(fmt.Sprintf("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '%s'", d.slot))
			return comeBack
		}},
		// Even when it goes on, the instance does not learn of the loss: only the
		// successor's wait helps.
		"suspended and cut off from the server and the walsender ended": {timeout: 8 * time.Second, vanish: func(d *duel) func() {
			who, comeBack := d.holder, d.suspend(d.holder)
			release := who.postgres.Hold(func([]byte) bool { return true })
			d.exec(fmt.Sprintf("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '%s'", d.slot))
			return func() {
				const out = "PostgreSQL has not shown for long that this instance still reads the slot"
				before := who.logged(out)
				comeBack()
				await.Until(d.t, "end of its lease", func() bool { return who.logged(out) > before })
				release()
			}
		}},
		// Everything sent waits on the way. In the end, all but the records taken
		// back by the lease arrive.
		"cut off": {timeout: 2 * time.Second, open: true, vanish: func(d *duel) func() {
			return d.cutOff(d.holder)
		}},
	} {
		if c.open && os.Getenv(roundsEnv) == "" {
			continue // a measurement, without a right result
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDuel(t, c.timeout)
			late := 0
			for n := range rounds(t) {
				keys := d.round(seed(t)+uint64(n), func() func() { return c.vanish(d) })
				late += len(keys)
				if len(keys) > 0 && !c.open {
					t.Errorf("outdated: %s", strings.Join(keys, "; "))
				}
			}
			t.Logf("%d keys ended with an outdated record in %d rounds", late, rounds(t))
			d.holder.stop()
			d.spare.stop()
			d.verify()
		})
	}
}

// roundsEnv is the number of rounds of each kind, and Apache Kafka has three
// brokers then. By default there are two rounds, of the kinds without late
// records.
const roundsEnv = "CDC_OUTBOX_TEST_ROUNDS"

func rounds(t testing.TB) int {
	if text := os.Getenv(roundsEnv); text != "" {
		return must.Get(strconv.Atoi(text))(t)
	}
	return 2
}

// suspend stops a process, as a suspended machine or a paused container would be.
func (d *duel) suspend(who *duellist) (comeBack func()) {
	who.signal(syscall.SIGSTOP)
	return func() { who.signal(syscall.SIGCONT) }
}

// cutOff lets nothing pass between an instance and the servers, and closes nothing.
func (d *duel) cutOff(who *duellist) (comeBack func()) {
	held := []func(){who.postgres.Hold(func([]byte) bool { return true })}
	for _, broker := range d.brokers {
		held = append(held, broker.Hold(func(first []byte) bool { return bytes.Contains(first, []byte(who.client)) }))
	}
	return func() {
		for _, release := range held {
			release()
		}
	}
}

// duel are two instances taking the slot from each other.
type duel struct {
	*world
	holder, spare *duellist
}

// duellist is an instance with separate ways to the servers.
type duellist struct {
	*connector
	postgres *proxy.Proxy
	client   string // the client.id
}

func newDuel(t *testing.T, timeout time.Duration) *duel {
	o := options{kafka: "client_id: first-of-two"}
	if kafkatest.Real() && os.Getenv(roundsEnv) != "" {
		o.brokers = 3
	}
	w := newWorld(t, o)
	w.setSenderTimeout(timeout)
	text := string(must.Get(os.ReadFile(w.config))(t))
	start := func(client string) *duellist {
		p := listen(t, "127.0.0.1:0", w.address())
		own := strings.NewReplacer(w.postgres.Addr(), p.Addr(), "first-of-two", client).Replace(text)
		config := filepath.Join(t.TempDir(), "cdc-outbox.yaml")
		must.OK(t, os.WriteFile(config, []byte(own), 0o600))
		return &duellist{startConnector(t, config), p, client}
	}
	d := &duel{world: w, holder: start("first-of-two")}
	d.holder.awaitLog(w.started())
	d.spare = start("second-of-two")
	d.spare.awaitLog("standing by")
	return d
}

// round returns the keys ending with an outdated record. vanish takes the slot
// away from the holder.
func (d *duel) round(seed uint64, vanish func() func()) (keys []string) {
	const dropped = "dropped what was in flight"
	d.t.Helper()
	stoodBy, since := d.holder.logged(dropped), len(d.reader.Records())
	d.delay(30 * time.Millisecond) // the holder has records not sent yet
	load := d.write(seed, 4*time.Millisecond, 0)
	load.await(200)
	before, _ := d.look()

	comeBack := vanish()
	d.delay(0)
	d.awaitReader(d.spare.connector, before.pid)
	load.await(200)
	load.stop()
	d.arrived()
	d.confirmed()
	published := d.read()
	comeBack()
	await.Until(d.t, "end of what the earlier holder had in flight", func() bool {
		d.holder.running()
		return d.holder.logged(dropped) > stoodBy
	})
	after := d.read()
	d.t.Logf("%d records, then %d late ones", published, after-published)
	d.holder, d.spare = d.spare, d.holder
	return outdated(d.t, d.reader.Records()[since:])
}

// delay delays requests to brokers.
func (d *duel) delay(by time.Duration) {
	for _, broker := range d.brokers {
		broker.Set(proxy.Up, proxy.Fault{Delay: by})
	}
}

// confirmed returns once the slot's holder has confirmed all arrived events.
func (d *duel) confirmed() {
	d.t.Helper()
	var last pg.LSN
	for _, rec := range d.reader.Records() {
		last = max(last, positionOf(d.t, rec).CommitLSN)
	}
	await.Until(d.t, "confirmation of all events", func() bool {
		s, _ := d.look()
		return s.confirmed > last
	})
}

// read reads the topics to their ends, and returns how many records they have.
func (d *duel) read() int {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must.OK(d.t, d.reader.AwaitEnds(ctx, d.ends()))
	return len(d.reader.Records())
}

// logged is how often the process has logged the text.
func (c *connector) logged(text string) int {
	return bytes.Count(must.Get(os.ReadFile(c.log))(c.t), []byte(text))
}

// outdated are the keys whose last record is not their latest.
func outdated(t testing.TB, records []checker.Record) (keys []string) {
	type key struct{ topic, key string }
	type seen struct {
		latest pg.Position
		behind int // records after the last of the latest position
	}
	all := map[key]*seen{}
	for _, rec := range records {
		at, of := positionOf(t, rec), key{rec.Topic, rec.Key}
		switch k := all[of]; {
		case k == nil:
			all[of] = &seen{latest: at}
		case at.Compare(k.latest) >= 0:
			*k = seen{latest: at}
		default:
			k.behind++
		}
	}
	for of, k := range all {
		if k.behind > 0 {
			keys = append(keys, fmt.Sprintf("%d records at the end of key %q in %s", k.behind, of.key, of.topic))
		}
	}
	return keys
}

// positionOf is the position in the record's headers.
func positionOf(t testing.TB, rec checker.Record) (at pg.Position) {
	t.Helper()
	for _, h := range rec.Headers {
		switch h.Key {
		case "cdc-lsn":
			at.CommitLSN = must.Get(pglogrepl.ParseLSN(h.Value))(t)
		case "cdc-seq":
			at.Seq = uint32(must.Get(strconv.ParseUint(h.Value, 10, 32))(t))
		}
	}
	return at
}
