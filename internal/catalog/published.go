package catalog

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// PublishedBefore returns a question for checkpoint.Through: whether the
// publication has published all of the tables, as it does now, since before the
// horizon of a view. The ids of the transactions that wrote the rows of the
// catalogs tell.
func (s Source) PublishedBefore(ctx context.Context, conn *pgx.Conn) func(horizon uint64) (bool, error) {
	return func(horizon uint64) (bool, error) { return s.publishedBefore(ctx, conn, horizon) }
}

func (s Source) publishedBefore(ctx context.Context, conn *pgx.Conn, horizon uint64) (published bool, err error) {
	inSchema := `false`
	if majorVersion(conn) >= 15 {
		inSchema = `EXISTS (SELECT FROM pg_publication_namespace pn WHERE pn.pnpubid = p.oid AND pn.pnnspid = c.relnamespace AND ` + before("pn.xmin") + `)`
	}
	schemas, names := make([]string, len(s.Tables)), make([]string, len(s.Tables))
	for i, t := range s.Tables {
		schemas[i], names[i] = t.Schema, t.Name
	}
	sql := `
		SELECT ` + before("p.xmin") + ` AND NOT EXISTS (
		         SELECT FROM unnest($3::text[], $4::text[]) t (schema, name)
		           LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace) ON n.nspname = t.schema AND c.relname = t.name
		          WHERE NOT (c.oid IS NOT NULL AND (p.puballtables
		                OR EXISTS (SELECT FROM pg_publication_rel pr WHERE pr.prpubid = p.oid AND pr.prrelid = c.oid AND ` + before("pr.xmin") + `)
		                OR ` + inSchema + `)))
		  FROM pg_publication p WHERE p.pubname = $1`
	err = conn.QueryRow(ctx, sql, s.Publication, strconv.FormatUint(horizon&0xffffffff, 10), schemas, names).Scan(&published)
	if err != nil {
		return false, fmt.Errorf("read since when publication %q has the tables: %w", s.Publication, err)
	}
	return published, nil
}

// before is the condition that a transaction's id is before the horizon, $2.
// Ids wrap around.
func before(id string) string { return "age(" + id + ") > age($2::text::xid)" }
