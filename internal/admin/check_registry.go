package admin

import (
	"context"
	"errors"

	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// registry checks that the schema registry answers. Rows show whether their schemas are
// there: see encode.
func (d *doctor) registry(ctx context.Context) {
	const name = "registry.connection"
	encoder, err := wiring.Encoder(d.cfg)
	switch {
	case err != nil:
		d.fail(name, err)
		return
	case encoder == nil:
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	encoder.LookOnly()
	if err := encoder.Reach(ctx); err != nil {
		d.fail(name, err)
		encoder.Close()
		return
	}
	d.encoder = encoder
	if len(d.cfg.Encoding.Registry.URLs) == 0 {
		d.skip(name, "encoding.registry.urls is empty: the numbers of schemas are not looked for")
		return
	}
	d.ok(name, "the schema registry answers")
}

// encode encodes a row's event, and reports once why schemas are not to be had. An error is
// of the event.
func (d *doctor) encode(ctx context.Context, ev *transform.Event) error {
	const name = "registry.schemas"
	if d.encoder == nil || d.schemaFailed {
		return nil
	}
	known, err := d.encoder.Encode(ev)
	if !known {
		if err = d.encoder.Learn(ctx, ev); err == nil {
			_, err = d.encoder.Encode(ev)
		}
	}
	if _, bad := errors.AsType[*transform.BadEvent](err); err == nil || bad {
		return err
	}
	d.schemaFailed = true
	d.fail(name, err)
	return nil
}
