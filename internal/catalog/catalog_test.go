package catalog

import (
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// wantConfig asserts that err is of class Config and has a remedy.
func wantConfig(t *testing.T, err error) {
	t.Helper()
	if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
		t.Errorf("error %v: class %v, remedy %q; want class Config and a remedy",
			err, failure.ClassOf(err), failure.RemedyOf(err))
	}
}

func TestReadServer(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	conn := connect(t, url)
	s := must.Get(ReadServer(pgtest.Context(t), conn))(t)
	id := must.Get(Identify(pgtest.Context(t), replication(t, url)))(t)

	if s.SystemID != id.SystemID || s.Timeline != id.Timeline || s.Database != id.Database {
		t.Errorf("ReadServer says %+v, IDENTIFY_SYSTEM says %+v", s, id)
	}
	if s.Major() < 14 || s.WALLevel != "logical" || s.InRecovery || s.FlushLSN == 0 || s.FlushLSN > id.FlushLSN {
		t.Errorf("unlikely state %+v", s)
	}
	if s.MaxSlots == 0 || s.MaxSenders == 0 {
		t.Errorf("no capacity in %+v", s)
	}
}

func TestReadServerSettings(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	conn := connect(t, url, `SET wal_sender_timeout = '90s'`)
	s, err := ReadServer(pgtest.Context(t), conn)
	must.OK(t, err)
	if s.WALSenderTimeout != 90*time.Second {
		t.Errorf("wal_sender_timeout is %s, want 90s", s.WALSenderTimeout)
	}
	if s.MaxSlotWALKeepSize != -1 {
		t.Errorf("max_slot_wal_keep_size is %d, want -1", s.MaxSlotWALKeepSize)
	}

	pgtest.Execute(t, conn, `SET wal_sender_timeout = 0`)
	if s, err = ReadServer(pgtest.Context(t), conn); err != nil || s.WALSenderTimeout != 0 {
		t.Errorf("wal_sender_timeout is %s, %v, want 0", s.WALSenderTimeout, err)
	}
}
