package relay

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// Of several hosts, one refuses us for good, as a standby with another password.
// The other is restarted: that must not end the connector.
func TestOneOfSeveralHostsRefuses(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	d := newDatabase(t, server.NewDatabase(t))
	u := mustParse(t, d.url)
	u.Host = mustParse(t, pgtest.Shared(t).URL("postgres")).Host + "," + u.Host
	d.cfg.Source.URL = config.Secret(u.String())
	to := &topic{}
	i := d.start(&store{}, &gate{topic: to}).streams()
	ids := d.insert(1, 1)
	arrive(t, to, 1)
	server.Stop(t, pgtest.Fast)
	before := i.metrics.reconnected()
	eventually(t, "another attempt", func() bool { return i.metrics.reconnected() > before+1 })
	server.Resume(t)
	d.connect()
	ids = append(ids, d.insert(1, 1)...)
	arrive(t, to, 2)
	i.stop()
	wantOnce(t, to, ids)
}
