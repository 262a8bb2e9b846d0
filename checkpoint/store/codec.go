package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// formatVersion is the version of the stored form. formatVersion is raised when
// an older reader would misread a newer checkpoint, and not for a new field an
// older reader may ignore.
const formatVersion = 1

// document is a checkpoint in stored form. Its LSN hides the Checkpoint's, so
// an operator sees PostgreSQL's own notation.
type document struct {
	Version  int               `json:"version"`
	LSN      string            `json:"lsn"`
	Landmark *landmarkDocument `json:"landmark,omitempty"`
	Skip     *landmarkDocument `json:"skip,omitempty"`
	Cut      *cutDocument      `json:"cut,omitempty"`

	Accepted *gapDocument       `json:"accepted_gap,omitempty"`
	Owned    []ownedDocument    `json:"owned,omitempty"`
	Doubtful []doubtfulDocument `json:"doubtful,omitempty"`
	checkpoint.Checkpoint
}

// landmarkDocument is a Landmark in stored form.
type landmarkDocument struct {
	Commit string    `json:"commit"`
	XID    uint32    `json:"xid,omitempty"`
	Time   time.Time `json:"time,omitzero"`
}

// cutDocument is a Cut in stored form.
type cutDocument struct {
	landmarkDocument
	Seq uint32 `json:"seq"`
}

// doubtfulDocument is a Doubtful in stored form.
type doubtfulDocument struct {
	Saved     document           `json:"saved"`
	Producer  int64              `json:"producer"`
	Epoch     int16              `json:"epoch"`
	Aborted   int16              `json:"aborted"`
	Committed bool               `json:"committed,omitempty"`
	Written   checkpoint.Written `json:"written"`
}

func documentsOf(all []checkpoint.Doubtful) (docs []doubtfulDocument) {
	for _, d := range all {
		d.Saved.Doubtful = nil // among all, unless passed
		d.Saved.Ends = nil     // the counting checkpoint's are as high at least
		docs = append(docs, doubtfulDocument{newDocument(d.Saved), d.Producer, d.Epoch, d.Aborted, d.Committed, d.Written})
	}
	return docs
}

func cutOf(c checkpoint.Cut) *cutDocument {
	if c.IsZero() {
		return nil
	}
	return &cutDocument{*documentOf(c.Landmark), c.Seq}
}

func (d *cutDocument) cut() (checkpoint.Cut, error) {
	if d == nil {
		return checkpoint.Cut{}, nil
	}
	landmark, err := d.landmarkDocument.landmark()
	return checkpoint.Cut{Landmark: landmark, Seq: d.Seq}, err
}

func documentOf(l checkpoint.Landmark) *landmarkDocument {
	if l.IsZero() {
		return nil
	}
	return &landmarkDocument{Commit: l.Commit.String(), XID: l.XID, Time: l.Time}
}

func (d *landmarkDocument) landmark() (checkpoint.Landmark, error) {
	if d == nil {
		return checkpoint.Landmark{}, nil
	}
	commit, err := parseLSN(d.Commit)
	return checkpoint.Landmark{Commit: commit, XID: d.XID, Time: d.Time}, err
}

func encode(cp checkpoint.Checkpoint) ([]byte, error) {
	if cp.LSN == 0 {
		return nil, errors.New("encode checkpoint: it has no position")
	}
	b, err := json.Marshal(newDocument(cp))
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return b, nil
}

func newDocument(cp checkpoint.Checkpoint) document {
	return document{
		Version: formatVersion, LSN: cp.LSN.String(),
		Landmark: documentOf(cp.Landmark), Skip: documentOf(cp.Skip), Cut: cutOf(cp.Cut), Accepted: gapDocumentOf(cp.Accepted),
		Owned: ownedDocuments(cp.Owned), Doubtful: documentsOf(cp.Doubtful), Checkpoint: cp,
	}
}

// decode reads encode's output. where names the place for the operator.
func decode(b []byte, where string) (cp checkpoint.Checkpoint, err error) {
	var version struct {
		Version int `json:"version"`
	}
	var doc document
	if err := json.Unmarshal(b, &version); err != nil {
		return cp, unreadable(where, err)
	}
	if version.Version > formatVersion {
		return cp, failure.Configf("run the version of cdc-outbox that wrote it, or a newer one",
			"%s has format version %d, newer than the %d that this cdc-outbox reads",
			where, version.Version, formatVersion)
	}
	if version.Version < 1 {
		return cp, unreadable(where, errors.New("it has no format version"))
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return cp, unreadable(where, err)
	}
	if cp, err = doc.checkpoint(); err != nil {
		return checkpoint.Checkpoint{}, unreadable(where, err)
	}
	return cp, nil
}

func (d document) checkpoint() (cp checkpoint.Checkpoint, err error) {
	cp = d.Checkpoint
	if cp.LSN, err = parseLSN(d.LSN); err != nil {
		return cp, err
	}
	if cp.Landmark, err = d.Landmark.landmark(); err != nil {
		return cp, fmt.Errorf("landmark: %w", err)
	}
	if cp.Skip, err = d.Skip.landmark(); err != nil {
		return cp, fmt.Errorf("skip: %w", err)
	}
	if cp.Cut, err = d.Cut.cut(); err != nil {
		return cp, fmt.Errorf("cut: %w", err)
	}
	if cp.Accepted, err = d.Accepted.gap(); err != nil {
		return cp, fmt.Errorf("accepted gap: %w", err)
	}
	if cp.Owned, err = ownedOf(d.Owned); err != nil {
		return cp, err
	}
	for _, doubtful := range d.Doubtful {
		saved, err := doubtful.Saved.checkpoint()
		if err != nil {
			return cp, fmt.Errorf("doubtful transaction: %w", err)
		}
		cp.Doubtful = append(cp.Doubtful, checkpoint.Doubtful{
			Saved: saved, Producer: doubtful.Producer, Epoch: doubtful.Epoch,
			Aborted: doubtful.Aborted, Committed: doubtful.Committed, Written: doubtful.Written,
		})
	}
	return cp, nil
}

// parseLSN takes the whole text for an LSN; pglogrepl.ParseLSN would accept any
// text beginning with an LSN.
func parseLSN(s string) (pg.LSN, error) {
	lsn, err := pglogrepl.ParseLSN(s)
	if err != nil {
		return 0, err
	}
	if lsn == 0 || lsn.String() != s {
		return 0, fmt.Errorf("lsn %q is no position", s)
	}
	return lsn, nil
}

// unreadable is the error of bytes that are no checkpoint. A start without the
// checkpoint would not notice another slot, so only an operator may decide on a
// start.
func unreadable(where string, err error) error {
	return failure.Configf(
		"if nothing else writes there, set checkpoint.key (for a file: checkpoint.path) to a new name: the slot is then read on from its own confirmed position (with source.snapshot: initial, once it is decided whether the table is published again)",
		"%s is not a checkpoint of cdc-outbox: %w", where, err)
}

// ErrSuperseded is wrapped by the error of a save by a connector that no longer
// holds the slot. It has no class: the connector may stand by for the slot
// again.
var ErrSuperseded = errors.New("another connector took over")

func superseded(found, cp checkpoint.Checkpoint) error {
	return fmt.Errorf("%w: the stored checkpoint is at %s in epoch %d, this one at %s in epoch %d", ErrSuperseded, found.LSN, found.Epoch, cp.LSN, cp.Epoch)
}
