package retention_test

import (
	"fmt"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// TestDetachingYieldsToWriters: while a transaction that wrote events is open,
// other writers go on, and beside a default partition the old one stays.
func TestDetachingYieldsToWriters(t *testing.T) {
	for _, withDefault := range []bool{true, false} {
		t.Run(fmt.Sprintf("default partition %t", withDefault), func(t *testing.T) {
			schema := outbox.PartitionedSchema
			if !withDefault {
				schema += "; DROP TABLE outbox_default"
			}
			k := start(t, schema+oldPartition)
			k.await("the present partition", func() bool { return k.observer.created.Load() >= 3 })
			open := k.connect()
			open.exec(`BEGIN`)
			open.insert("open", "-1 hour")
			k.exec(`SET lock_timeout = '30s'`)
			k.await("failed passes", func() bool { k.confirmAll(); return k.observer.failed.Load() > 0 })
			for range 20 {
				k.insert("beside", "-1 hour")
			}
			if withDefault && k.value(`SELECT count(*) FROM pg_class WHERE relname = 'outbox_p20200101'`) != 1 {
				t.Error("the partition went beside a writer")
			}
			open.exec(`COMMIT`)
			k.await("the partition to go", func() bool {
				k.confirmAll()
				return k.value(`SELECT count(*) FROM pg_class WHERE relname = 'outbox_p20200101'`) == 0
			})
			if got := k.count("type IN ('open', 'beside')"); got != 21 {
				t.Errorf("%d young rows are left of 21", got)
			}
		})
	}
}
