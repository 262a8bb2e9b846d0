package e2e

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// `upgrade prepare` and `upgrade finish` are killed at each step, and repeated. Every event
// arrives, in order, and once with exactly once.
func TestE2EMajorUpgradeKilled(t *testing.T) {
	for name, c := range map[string]struct {
		from    int
		options options
		usual   bool // also without upgradesEnv
	}{
		"15 to 18":               {15, options{}, false},
		"15 to 18 exactly once":  {15, options{exactlyOnce: true}, true},
		"17 to 18 exactly once":  {17, options{exactlyOnce: true}, false},
		"17 to 18 in PostgreSQL": {17, options{config: "checkpoint:\n  store: postgres\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			drill(t, c.usual)
			c.options.server, c.options.unread = pgtest.Start(t, pgtest.Own(), pgtest.Complete(t, c.from)), true
			w := newWorld(t, c.options)
			w.exec(byCommit...)
			random := rand.New(rand.NewPCG(seed(t), 8))
			con := w.start()
			stream := w.insertAlways()
			w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(200))
			con.stop()
			written := stream.end(t)
			con = w.start()
			w.wantExit(2, w.config, "upgrade", "prepare", "--yes")
			con.stop()
			kills := w.killedAtEachStep(random, func() {
				if random.IntN(10) == 0 { // a connector goes on with the old server
					con := w.start()
					con.stop()
				}
			}, "upgrade", "prepare", "--yes")
			if c.from < 17 { // pg_upgrade keeps no slot, and asks for no confirmation
				w.insertEvents(written+1, written+50)
				written += 50
			}
			must.OK(t, c.options.server.Upgrade(t, 18))
			w.sql = connect(t, w.url)
			t.Logf("%d kills of prepare, %d of finish", kills, w.killedAtEachStep(random, func() {}, "upgrade", "finish", "--yes"))
			con = w.start()
			w.insertEvents(written+1, written+50)
			written += 50
			if c.options.exactlyOnce {
				w.wantEachInOrder(written)
			} else {
				w.wantEach(written, false)
			}
			must.Contain(t, w.wantExit(0, w.config, "verify"), " 0 missing, 0 unknown")
			con.stop()
		})
	}
}

// killedAtEachStep runs a command time and again, until one run ends before its kill, and
// returns the number of kills. Each kill is a few steps behind the one before: a step is a
// message to or from PostgreSQL or Kafka. between is called behind each kill.
func (w *world) killedAtEachStep(random *rand.Rand, between func(), args ...string) (kills int) {
	w.t.Helper()
	for at := int64(5 + random.IntN(5)); ; at += int64(1 + random.IntN(stepsSkipped(w.t))) {
		c, killed := w.killedAtStep(at, args...)
		if !killed {
			if code := c.cmd.ProcessState.ExitCode(); code != 0 {
				w.t.Fatalf("%s before step %d, after %d kills: exit code %d; %s", strings.Join(args, " "), at, kills, code, c.lastLines(30))
			}
			return kills
		}
		kills++
		between()
	}
}

// stepsSkipped is how many steps are passed over between two kills, at most.
func stepsSkipped(t testing.TB) int {
	if os.Getenv(upgradesEnv) == "" {
		return 40
	}
	return 6
}

// killedAtStep runs a command, and kills it before the message with the number passes.
func (w *world) killedAtStep(at int64, args ...string) (c *connector, killed bool) {
	w.t.Helper()
	cmd := exec.Command(binary, append(args, "-c", w.config)...)
	cmd.Env = environment(w.t)
	var steps atomic.Int64
	started := make(chan struct{})
	count := func([]byte) bool {
		switch n := steps.Add(1); {
		case n < at:
			return false
		case n == at:
			<-started
			_ = cmd.Process.Signal(syscall.SIGKILL) // or it has ended
		}
		return true // nothing passes behind
	}
	defer w.postgres.Hold(count)()
	defer w.kafka.Hold(count)()
	c = launch(w.t, cmd)
	close(started)
	c.wait()
	return c, cmd.ProcessState.ExitCode() == -1
}
