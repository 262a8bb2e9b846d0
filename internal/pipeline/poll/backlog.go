package poll

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// BacklogCounted is up to how many unpublished rows are counted: a long backlog is
// not read through only for a count.
const BacklogCounted = 10_000

// Backlog are the unpublished rows of a table.
type Backlog struct {
	Rows   int64         // up to BacklogCounted
	Oldest time.Duration // age of the oldest of them; 0 where unknown
}

// ReadBacklog counts a table's unpublished rows, in their order.
func ReadBacklog(ctx context.Context, conn *pgx.Conn, t *Table) (Backlog, error) {
	created := "NULL::float8"
	if t.CreatedAt != "" {
		c := pgsql.Name(t.CreatedAt)
		created = "CASE WHEN isfinite(" + c + ") THEN extract(epoch FROM " + c + ") END"
	}
	var b Backlog
	var age *float64
	err := conn.QueryRow(ctx, fmt.Sprintf(
		"SELECT count(*), (extract(epoch FROM now()) - min(c))::float8 FROM (SELECT %s AS c FROM %s WHERE %s ORDER BY %s LIMIT %d) waiting",
		created, t.Name.Quoted(), t.pending, pgsql.Name(t.Order.Columns[0]), BacklogCounted)).Scan(&b.Rows, &age)
	if err != nil {
		return Backlog{}, fmt.Errorf("count unpublished rows of %s: %w", t.Name, classify(err, t))
	}
	if age != nil {
		b.Oldest = max(0, time.Duration(*age*float64(time.Second)))
	}
	return b, nil
}

// LaneHolder is a session working on lanes of a table at the moment.
type LaneHolder struct {
	PID         int32  `json:"pid"`
	Application string `json:"application_name,omitempty"`
	Address     string `json:"client_addr,omitempty"`
	User        string `json:"user,omitempty"`
	Lanes       []int  `json:"lanes"`
}

// ReadLanes lists the present holders of a table's lanes. There are none while
// there is nothing to publish.
func ReadLanes(ctx context.Context, conn *pgx.Conn, t *Table) ([]LaneHolder, error) {
	rows, err := conn.Query(ctx, `
		SELECT l.pid, COALESCE(a.application_name, ''), COALESCE(host(a.client_addr), ''), COALESCE(a.usename::text, ''),
		       array_agg((l.objid::bigint - $2)::int ORDER BY l.objid)
		  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		 WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = $1 AND l.granted
		   AND l.objid::bigint >= $2 AND l.objid::bigint < $3
		   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		 GROUP BY 1, 2, 3, 4 ORDER BY 1`, t.OID, int64(laneBase), int64(presence))
	if err != nil {
		return nil, fmt.Errorf("read lanes of %s: %w", t.Name, err)
	}
	holders, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h LaneHolder, err error) {
		err = row.Scan(&h.PID, &h.Application, &h.Address, &h.User, &h.Lanes)
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("read lanes of %s: %w", t.Name, err)
	}
	return holders, nil
}
