package wiring

import (
	"slices"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// Credentials returns why the present contents of files of credentials are of no use, for
// Kafka, the schema registry and the claim store. Connections are made with the former
// contents.
func Credentials(cfg *config.Config) (troubles []error) {
	if cfg.Sink.Kafka != nil {
		troubles = cfg.Sink.Kafka.Present()
	}
	return slices.Concat(troubles, cfg.Encoding.Present(), cfg.ClaimCheck.Present())
}
