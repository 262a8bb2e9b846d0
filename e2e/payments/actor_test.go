package payments

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// actor is a process that is killed and started again. One goroutine uses it at
// a time.
type actor struct {
	name    string
	program string
	args    []string
	environ []string
	log     string // the file the output goes to
	process *child.Process
	kills   int
}

func (a *actor) start() error {
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(a.program, a.args...)
	cmd.Env = append(os.Environ(), a.environ...)
	cmd.Stdout, cmd.Stderr = log, log
	if a.process, err = child.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", a.name, err)
	}
	return nil
}

// alive is an error if the process ended by itself.
func (a *actor) alive() error {
	select {
	case <-a.process.Exited():
		return fmt.Errorf("%s ended by itself; its log is %s", a.name, a.log)
	default:
		return nil
	}
}

// kill is kill -9, and a new process.
func (a *actor) kill(ctx context.Context) error {
	if err := a.alive(); err != nil {
		return err
	}
	if err := a.process.Stop(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	a.kills++
	return a.start()
}

// stop ends the process in order.
func (a *actor) stop() error {
	if a.process == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return a.process.Stop(ctx, syscall.SIGTERM)
}

// cast is the three processes.
type cast struct{ orders, shipping, connector *actor }

func (c cast) all() []*actor { return []*actor{c.orders, c.shipping, c.connector} }

// newCast describes the processes; the services are our program in other roles.
func newCast(s *stage, o options) (cast, error) {
	self, err := os.Executable()
	if err != nil {
		return cast{}, err
	}
	service := func(role string) *actor {
		return &actor{
			name: role, program: self, log: filepath.Join(o.logs, role+".log"),
			args: []string{
				"-role", role, "-store", string(o.store), "-store-url", s.storeURL,
				"-database", s.postgres.URL(role), "-brokers", s.broker(),
			},
		}
	}
	return cast{
		orders:   service(roleOrders),
		shipping: service(roleShipping),
		connector: &actor{
			name: "cdc-outbox", program: o.connector, log: filepath.Join(o.logs, "cdc-outbox.log"),
			args: []string{"run"},
			environ: []string{
				"CDC_OUTBOX_SOURCE_URL=" + s.postgres.URL(roleOrders),
				"CDC_OUTBOX_SINK_KAFKA_BROKERS=" + s.broker(),
				"CDC_OUTBOX_HTTP_LISTEN=",
				"CDC_OUTBOX_LOG_FORMAT=console",
			},
		},
	}, nil
}

// setUpConnector creates publication and slot, so nothing is committed before
// them.
func (c cast) setUpConnector(ctx context.Context) error {
	setup := exec.CommandContext(ctx, c.connector.program, "setup")
	setup.Env = append(os.Environ(), c.connector.environ...)
	if out, err := setup.CombinedOutput(); err != nil {
		return fmt.Errorf("cdc-outbox setup: %w: %s", err, out)
	}
	return nil
}
