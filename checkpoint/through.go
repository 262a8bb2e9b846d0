package checkpoint

import (
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// Through returns the checkpoint for another publication than before, if nothing is lost:
// the publication has had all tables since before the checkpoint, as published tells by
// the horizon. Earlier rows may have come through the former publication alone, so they do
// not help to recognise the log.
func (c Checkpoint) Through(name, fingerprint string, published func(horizon uint64) (bool, error)) (Checkpoint, error) {
	if c.Horizon == 0 || !catalog.OtherPublication(c.Publication, fingerprint) {
		return c, nil
	}
	if ok, err := published(c.Horizon); !ok || err != nil {
		return c, err
	}
	if !c.Cut.IsZero() || len(c.Doubtful) > 0 {
		return c, failure.Configf(fmt.Sprintf("start once with source.publication: %s, until the transaction is published", c.PublicationName),
			"the checkpoint at %s is in the middle of a transaction, whose changes publication %q may number in another way than %q", c.LSN, name, c.PublicationName)
	}
	c.Publication, c.PublicationName, c.Landmark = fingerprint, name, Landmark{Commit: c.LSN}
	return c, nil
}
