package checkpoint

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// Upgrade is noted by `upgrade prepare`: everything up to the checkpoint is
// published, and behind the last event is a marker. A new server is accepted as
// the upgraded one only with the marker. The next checkpoint of a connector has
// no Upgrade: there may be events behind the marker.
type Upgrade struct {
	Marker  catalog.Marker `json:"marker"`
	Version int            `json:"version"` // of the old server, server_version_num
	At      time.Time      `json:"at"`
	// Creating is set before `upgrade finish` makes a slot on the new server. A slot
	// found later was not kept by the upgrade.
	Creating bool `json:"creating,omitempty"`
}

// upgraded adds the way on to the error of another cluster.
func (c *Checkpoint) upgraded(err error) error {
	if c.Upgrade == nil {
		return err
	}
	return failure.Lossf("if this is the server after the major upgrade: `cdc-outbox upgrade finish`; otherwise "+failure.RemedyOf(err), "%w", err)
}
