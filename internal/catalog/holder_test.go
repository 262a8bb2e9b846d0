package catalog

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

func TestHolderThatHasGone(t *testing.T) {
	conn := connect(t, pgtest.Shared(t).NewDatabase(t))
	if h := must.Get(ReadHolder(t.Context(), conn, 1<<30))(t); h.String() != "pid 1073741824" {
		t.Errorf("one that has gone is %q", h)
	}
	if h := must.Get(ReadHolder(t.Context(), conn, int32(conn.PgConn().PID())))(t); h.Since == nil || h.User == "" {
		t.Errorf("this session is %+v", h)
	}
}
