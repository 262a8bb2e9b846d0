package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/docblocks"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
)

// Failure mode 65, and the two ways of docs/how-to/debezium.md: the slot of
// another program, here pg_recvlogical, is taken over while writers go on.
func TestE2ETakeOverAnotherReadersSlot(t *testing.T) {
	said := strings.Split(strings.TrimSpace(docblocks.Section(t, "../docs/how-to/debezium.md", "## Switch without losing an event")["sh"]), "\n")
	if len(said) != 4 {
		t.Fatalf("the page says %q", said)
	}
	verb := func(line string) []string {
		command, _, _ := strings.Cut(strings.TrimSpace(line), "#")
		return strings.Fields(strings.TrimPrefix(command, "cdc-outbox "))
	}
	for _, way := range []string{"adopted", "adopted and dropped", "run first"} {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, options{direct: true, unread: true})
			w.rewriteConfig("publication: "+w.slot, "publication: dbz_publication\n  create: false")
			w.exec(`CREATE PUBLICATION dbz_publication FOR ALL TABLES`, `SELECT pg_create_logical_replication_slot('`+w.slot+`', 'pgoutput')`)
			reader := w.otherReader("dbz_publication")
			w.event(toTable, 1)
			var c *connector
			if way == "run first" {
				c = startConnector(t, w.config)
				c.awaitLog("standing by")
			} else {
				w.wantExit(0, w.config, verb(said[0])...)
				must.Contain(t, w.wantExit(0, w.config, verb(said[1])...), "is taken over", "pg_recvlogical")
			}
			w.event(toTable, 2)
			must.OK(t, reader.Stop(t.Context(), syscall.SIGINT))
			await.Until(t, "the slot to be free", func() bool { s, ok := w.look(); return way == "run first" || ok && s.pid == 0 })
			if way == "adopted and dropped" {
				w.exec(`SELECT pg_drop_replication_slot('` + w.slot + `')`)
				w.event(toTable, 3)
				must.Contain(t, w.wantExit(3, w.config, verb(said[3])...), "is gone")
				if _, ok := w.look(); ok {
					t.Error("a slot was made, which leaves out event 3")
				}
				return
			}
			w.event(toTable, 3)
			if c == nil {
				c = startConnector(t, w.config)
			}
			w.event(toTable, 4)
			last := w.broker.Consume(t, []string{topicOf("order")}, func(all []*kgo.Record) bool {
				return len(all) > 0 && string(all[len(all)-1].Value) == "4"
			})
			var got []string
			for _, r := range last {
				got = append(got, string(r.Value))
			}
			const committed = "1 2 3 4"
			if all := strings.Join(got, " "); !strings.HasSuffix(committed, all) || !strings.HasSuffix(all, "3 4") {
				t.Errorf("published %s, want all behind the slot's position, 3 and 4 among them", all)
			}
			c.stop()
		})
	}
}

// otherReader is another program reading and confirming the slot.
func (w *world) otherReader(publication string) *child.Process {
	w.t.Helper()
	bin := must.Get(pgserver.Find())(w.t)
	cmd := exec.Command(filepath.Join(bin, "pg_recvlogical"), "-d", w.url, "-S", w.slot, "-P", "pgoutput", "-o", "proto_version=1",
		"-o", "publication_names="+publication, "-s", "1", "-F", "0", "-f", os.DevNull, "--no-loop", "--start")
	cmd.Stderr = os.Stderr
	p := must.Get(child.Start(cmd))(w.t)
	w.t.Cleanup(func() { _ = p.Stop(context.WithoutCancel(w.t.Context()), syscall.SIGKILL) })
	await.Until(w.t, "the other reader", func() bool { s, ok := w.look(); return ok && s.pid != 0 })
	return p
}
