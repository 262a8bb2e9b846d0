package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// published is how many events of orders the topics have at this moment.
func (w *world) published() (n int64) {
	w.t.Helper()
	for _, end := range w.ends()[topicOf("order")] {
		n += end
	}
	return n
}

// waiting runs the program's wait in the background. ended wants its exit code,
// and returns what it has printed.
func (w *world) waiting(args ...string) (ended func(code int) string) {
	w.t.Helper()
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	cmd := exec.CommandContext(w.t.Context(), binary, append([]string{"wait", "-c", w.config}, args...)...)
	cmd.Env = environment(w.t)
	go func() {
		out, err := cmd.CombinedOutput()
		done <- result{string(out), err}
	}()
	return func(code int) string {
		w.t.Helper()
		r := <-done
		got := 0
		if exit, ok := errors.AsType[*exec.ExitError](r.err); ok {
			got = exit.ExitCode()
		} else {
			must.OK(w.t, r.err)
		}
		if got != code {
			w.t.Fatalf("wait %v: exit code %d, want %d\n%s", args, got, code, r.out)
		}
		return r.out
	}
}

// wait is the library's, which a service calls.
func (w *world) wait() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	opts := outbox.WaitOptions{Slot: w.slot}
	if w.polled {
		opts = outbox.WaitOptions{Polled: true}
	}
	must.OK(w.t, outbox.Wait(ctx, w.sql, opts))
}

// Failure mode 184. Both waits end when all events committed before are in the
// topic, and not before: with a backlog, with a broker that takes nothing for a
// while, and in an idle database.
func TestE2EWaitEndsWithTheLastEvent(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]options{
		"table":        {},
		"messages":     {ways: asMessages},
		"polled":       {polled: polledSequence},
		"exactly once": {exactlyOnce: true},
	} {
		t.Run(name, func(t *testing.T) {
			o.unread = true
			w := newWorld(t, o)
			c := w.start()
			written := 0
			write := func(n int) {
				for range n {
					written++
					w.event(w.ways, written)
				}
			}
			want := func() {
				t.Helper()
				if got := w.published(); got < int64(written) {
					t.Errorf("the wait has ended with %d of %d events in the topic", got, written)
				}
			}
			for range 3 {
				write(100)
				w.waiting()(0)
				want()
				write(100)
				w.wait()
				want()
			}
			idle := time.Now()
			w.exec(`UPDATE stock SET n = n + 1 WHERE id = 1`)
			w.wait()
			t.Logf("an idle wait took %s", time.Since(idle).Round(time.Millisecond))

			held := w.kafka
			held.Set(proxy.Up, proxy.Fault{Swallow: true})
			write(1)
			must.Contain(t, w.waiting("--timeout", "5s")(1), "not everything is in Kafka after 5s")
			ended := w.waiting("--timeout", patience.String())
			held.Set(proxy.Up, proxy.Fault{})
			held.Cut()
			ended(0)
			want()
			c.stop()
		})
	}
}

// Failure mode 184. A wait for which nobody reads says so and goes on until
// somebody does; it ends at once if the slot can never tell.
func TestE2EWaitWithoutAReader(t *testing.T) {
	w := newWorld(t, options{unread: true})
	c := w.start()
	c.stop()
	w.event(toTable, 1)
	must.Contain(t, w.waiting("--timeout", "5s")(1), "note: nobody reads slot", "remedy: start the connector")
	ended := w.waiting("--timeout", patience.String())
	c = w.start()
	ended(0)
	if got := w.published(); got != 1 {
		t.Errorf("the wait has ended with %d events in the topic", got)
	}
	c.stop()
	w.event(toTable, 2)
	ended = w.waiting("--timeout", patience.String())
	w.exec(fmt.Sprintf(`SELECT pg_drop_replication_slot('%s')`, w.slot))
	must.Contain(t, ended(3), "slot")
	w.exec(fmt.Sprintf(`SELECT pg_create_logical_replication_slot('%s', 'pgoutput')`, w.slot))
	must.Contain(t, w.waiting("--timeout", patience.String())(3), "recreated")
}

// The role of a service may do nothing but write.
func TestE2EWaitOfAService(t *testing.T) {
	w := newWorld(t, options{unread: true})
	c := w.start()
	w.exec(`CREATE ROLE e2e_service`, `GRANT INSERT ON outbox TO e2e_service`, `SET ROLE e2e_service`)
	w.event(toTable, 1)
	w.wait()
	w.exec(`RESET ROLE`, `DROP OWNED BY e2e_service`, `DROP ROLE e2e_service`)
	if got := w.published(); got != 1 {
		t.Errorf("the wait has ended with %d events in the topic", got)
	}
	c.stop()
}
