package catalog

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

func TestOwnSenderKeepsItsTimeout(t *testing.T) {
	ctx := pgtest.Context(t)
	server := pgtest.Start(t)
	url := server.NewDatabase(t)
	conn := connect(t, url)
	configure := func(value string) {
		server.Exec(t, "ALTER SYSTEM SET wal_sender_timeout = '"+value+"'", "SELECT pg_reload_conf()")
		pgtest.Await(t, conn, "SELECT current_setting('wal_sender_timeout') = $1", value)
	}
	configure("90s")
	repl := replication(t, url)
	sender := must.Get(ReadOwnSender(ctx, repl))(t)
	if sender.Timeout != 90*time.Second || sender.PID == 0 {
		t.Errorf("it is %+v", sender)
	}
	configure("7s")
	if again := must.Get(ReadOwnSender(ctx, repl))(t); again != sender {
		t.Errorf("it is %+v after a change of the configuration, was %+v", again, sender)
	}

	own := func() Slot {
		slot, _, err := ReadSlot(ctx, conn, "own")
		must.OK(t, err)
		return slot
	}
	if sender.Holds(own()) {
		t.Error("it holds a slot that does not exist")
	}
	_, _, err := CreateSlot(ctx, repl, "own", must.Get(ReadServer(ctx, conn))(t).Version, SlotOptions{Temporary: true})
	must.OK(t, err)
	if !sender.Holds(own()) {
		t.Error("it does not hold its temporary slot")
	}
	if other := must.Get(ReadOwnSender(ctx, replication(t, url)))(t); other.Holds(own()) {
		t.Error("another process holds it, too")
	}
}
