package wiring

import (
	"github.com/cdc-outbox/cdc-outbox/internal/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// Values makes the keeper of the section claim_check; nil: all values are in Kafka. metrics may be
// nil.
func Values(cfg *config.Config, metrics claimcheck.Metrics) (*claimcheck.Keeper, error) {
	if !cfg.ClaimCheck.On() {
		return nil, nil
	}
	return claimcheck.New(cfg.ClaimCheck, cfg.Source.URL.Reveal(), cfg.Event.PayloadFormat, metrics)
}
