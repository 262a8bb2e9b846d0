package poll

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// flagRows is how many rows are looked at for the column marking published rows.
const flagRows = 1000

// Unmarked returns why source.poll.published seems to name the wrong column: true in no
// row looked at, while another boolean column is true in all rows with a time of
// publishing. All of them would be published once more.
func (t *Table) Unmarked(ctx context.Context, conn *pgx.Conn) error {
	if t.published == "" || t.publishedAt == "" {
		return nil
	}
	for _, flag := range t.otherFlags {
		var meant bool
		err := conn.QueryRow(ctx, fmt.Sprintf(`
			SELECT COALESCE(bool_or(at) AND bool_and(other OR NOT at) AND NOT bool_or(own), false)
			  FROM (SELECT %s IS NOT NULL AS at, %s IS TRUE AS other, %s IS TRUE AS own FROM %s LIMIT %d) AS looked`,
			pgsql.Name(t.publishedAt), pgsql.Name(flag), pgsql.Name(t.published), t.Name.Quoted(), flagRows)).Scan(&meant)
		if err != nil {
			return fmt.Errorf("look for the column that marks published rows of %s: %w", t.Name, classify(err, t))
		}
		if meant {
			return failure.Configf("did you mean source.poll.published: "+flag+"? If they are to be published once more, set "+t.publishedAt+" in them to NULL",
				"rows of %s that have %s are marked in column %q, and none in %q: all of them would be published once more",
				t.Name, t.publishedAt, flag, t.published)
		}
	}
	return nil
}
