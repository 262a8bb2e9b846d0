package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
)

// MissingPublication is the error of a missing publication beside an existing
// slot.
type MissingPublication struct {
	Name, Slot string
	Meant      string // the publication that is meant, which is there; "" for none
}

// Error implements error.
func (m *MissingPublication) Error() string {
	return fmt.Sprintf("publication %q does not exist, but slot %q does", m.Name, m.Slot)
}

func (m *MissingPublication) remedy() string {
	return "did you mean source.publication: " + m.Meant + "?"
}

// MissingPublication returns the error of a publication that is not there
// although its slot is; it wraps a MissingPublication. read is the fingerprint
// of the publication that was read, "" for none. It is a loss unless the name
// is mistaken: the publication that was read is there, or none was read and
// there is one of nearly the name. Messages do not pass through a publication,
// so nothing is lost where there are no tables.
func (s Source) MissingPublication(ctx context.Context, conn *pgx.Conn, read string) error {
	missing := &MissingPublication{Name: s.Publication, Slot: s.Slot}
	names, err := publicationNames(ctx, conn)
	if err != nil {
		return err
	}
	oid, _ := splitFingerprint(read)
	missing.Meant = names[oid]
	if oid == "" {
		missing.Meant = nearest.To(s.Publication, slices.Sorted(maps.Values(names)))
	}
	switch {
	case missing.Meant != "" && oid != "":
		return failure.Configf(missing.remedy(), "%w; the one that was read is called %q, and nothing is lost", missing, missing.Meant)
	case missing.Meant != "":
		return failure.Configf(missing.remedy(), "%w", missing)
	case len(s.Tables) == 0:
		return failure.Configf("run `cdc-outbox setup`, or: "+CreatePublicationSQL(s.Publication, nil)+";",
			"%w; its messages are kept, but up to PostgreSQL 17 the server cannot decode past changes of tables without it", missing)
	}
	return failure.Lossf(AcceptGap+NewPublication,
		"%w: events committed while it is missing never reach the slot", missing)
}

// publicationNames are the names of all publications, by OID.
func publicationNames(ctx context.Context, conn *pgx.Conn) (map[string]string, error) {
	names := make(map[string]string)
	rows, _ := conn.Query(ctx, `SELECT oid::text, pubname::text FROM pg_publication`)
	var oid, name string
	_, err := pgx.ForEachRow(rows, []any{&oid, &name}, func() error { names[oid] = name; return nil })
	if err != nil {
		return nil, fmt.Errorf("read the names of publications: %w", err)
	}
	return names, nil
}
