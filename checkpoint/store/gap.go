package store

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// gapDocument is an AcceptedGap in stored form.
type gapDocument struct {
	ID       string    `json:"id"`
	From     string    `json:"from,omitempty"`
	To       string    `json:"to,omitempty"`
	SystemID string    `json:"system_id,omitempty"`
	Timeline int32     `json:"timeline,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Accepted time.Time `json:"accepted"`
	Reason   string    `json:"reason,omitempty"`
}

func gapDocumentOf(g *checkpoint.AcceptedGap) *gapDocument {
	if g == nil {
		return nil
	}
	return &gapDocument{g.ID, pg.LSNText(g.From), pg.LSNText(g.To), g.SystemID, g.Timeline, g.Since, g.Accepted, g.Reason}
}

func (d *gapDocument) gap() (*checkpoint.AcceptedGap, error) {
	if d == nil {
		return nil, nil
	}
	from, err := position(d.From)
	if err != nil {
		return nil, err
	}
	to, err := position(d.To)
	return &checkpoint.AcceptedGap{
		ID: d.ID, From: from, To: to, SystemID: d.SystemID, Timeline: d.Timeline, Since: d.Since, Accepted: d.Accepted, Reason: d.Reason,
	}, err
}
