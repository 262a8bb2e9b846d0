package kafkatest

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// apache is Apache Kafka as a separate process, run by scripts/kafka.sh. Broker awaits
// the start.
type apache struct {
	*child.Server
	controller int      // port
	settings   []string // key=value
}

// newApache returns a broker with separate ports, not running yet.
func newApache(t testing.TB) (*apache, error) {
	script, err := child.Script("kafka.sh")
	if err != nil {
		return nil, err
	}
	dir := t.TempDir()
	a := &apache{Server: &child.Server{Name: "Kafka", Log: filepath.Join(dir, "log")}}
	for _, port := range []*int{&a.Port, &a.controller} {
		if *port, err = freeport.Take(); err != nil {
			return nil, err
		}
	}
	a.Command = func() (*exec.Cmd, error) {
		args := append([]string{"run", dir, strconv.Itoa(a.Port), strconv.Itoa(a.controller),
			// A controller waits for this before a killed broker leads again, and a test with both.
			"broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500"}, a.settings...)
		cmd := exec.Command(script, args...)
		cmd.Env = append(os.Environ(), versionEnv+"="+version())
		return cmd, nil
	}
	return a, nil
}

func startReal(t testing.TB, o options) (*apache, error) {
	a, err := newApache(t)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(o.settings)) {
		a.settings = append(a.settings, name+"="+o.settings[name])
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(a.Log)
			t.Logf("Kafka's log:\n%s", text)
		}
	})
	return a, a.Resume(context.Background())
}

// SkippedMarkers reports whether Apache Kafka has completed a transaction without the
// markers of its end. A broker killed before writing them, and started again with the
// log of an earlier incarnation, has no leaders at first, takes the partitions for
// deleted, and skips them (4.4.0). The transaction stays open there. Only the log tells;
// a container's log is not read.
func (b *Broker) SkippedMarkers(t testing.TB) bool {
	t.Helper()
	a, ok := b.server.(*apache)
	if !ok {
		return false
	}
	return bytes.Contains(must.Get(os.ReadFile(a.Log))(t), []byte("these partitions are likely deleted already"))
}
