package stream

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// Failure mode 56. (Which settings do it, wal's tests ask the server.)
func TestCommitsThatWaitForTheConnectorAreWarnedOfOnce(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Setting("synchronous_standby_names", `standby, "cdc-outbox"`), pgtest.Setting("synchronous_commit", "local"))
	d := newDatabase(t, server.NewDatabase(t))
	i := d.start(&fakeStore{}, d.gate).streams()
	d.kill()
	d.publish(1, 1)
	d.finish(i)
	warned := i.logs.FilterMessage(catalog.CommitsWait).All()
	if len(warned) != 1 || warned[0].ContextMap()["application_name"] != "cdc-outbox" {
		t.Errorf("warnings: %v, want one", warned)
	}

	named := mustParse(t, d.url)
	query := named.Query()
	query.Set("application_name", "publisher")
	named.RawQuery = query.Encode()
	d.opts.URL = named.String()
	i = d.start(&fakeStore{}, d.gate).streams()
	i.stop()
	if i.logs.FilterMessage(catalog.CommitsWait).Len() > 0 {
		t.Error("warned although the setting names another")
	}
}
