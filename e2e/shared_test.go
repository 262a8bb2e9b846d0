package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Two connectors share a publication: the teardown of one leaves the other's
// tables in the publication.
func TestE2ETeardownBesideASecondConnector(t *testing.T) {
	w := newWorld(t, options{direct: true, unread: true})
	w.run("setup")
	other := *w
	other.slot += "_2"
	other.config = filepath.Join(t.TempDir(), "other.yaml")
	text := string(must.Get(os.ReadFile(w.config))(t))
	must.OK(t, os.WriteFile(other.config, []byte(strings.Replace(text, "slot: "+w.slot, "slot: "+other.slot, 1)), 0o600))
	other.run("setup")

	c := w.start()
	other.run("teardown", "--yes")
	w.insertID(1, "aggregateid")
	w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(1))
	c.stop()
	c = w.start()
	w.insertID(2, "aggregateid")
	w.broker.Consume(t, []string{topicOf("order")}, kafkatest.Count(2))
	c.stop()
}
