package wiring

import (
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
)

// Encoder makes the encoder of the section encoding; nil: records are as they are.
func Encoder(cfg *config.Config) (*registry.Encoder, error) {
	if !cfg.Encoding.On() {
		return nil, nil
	}
	encoder, err := registry.New(cfg.Encoding, cfg.Event.TypeHeader)
	if err == nil && cfg.Event.CloudEvents.On() {
		encoder.NameSchemas()
	}
	return encoder, err
}
