package poll

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// Advisory locks are pairs: the table's OID, and a lane's number counted from
// laneBase. The base keeps them apart from the application's.
const (
	laneBase = 0x0CDC0000
	// presence is held by every claim, and by every worker waiting for a lane. The
	// number of holders is the number of busy workers.
	presence = laneBase + MaxLanes
	// MaxLanes bounds source.poll.lanes.
	MaxLanes = 1024
)

// lockClass is the first number of the table's advisory locks.
func (t *Table) lockClass() int32 { return int32(t.OID) }

// anySQL finds an unpublished row. The order is for the planner: with old
// statistics, from a time when rows waited, EXISTS would rather read the table
// from its beginning.
func (t *Table) anySQL() string {
	return "SELECT 1 FROM " + t.Name.Quoted() + " WHERE " + t.pending + " ORDER BY " + pgsql.Name(t.Order.Columns[0]) + " LIMIT 1"
}

// beginSQL begins a claim's transaction and takes the presence. The server ends the
// transaction if for longer than holdFor we send nothing, or read nothing of an answer.
// The second needs a timeout of TCP: an unread answer fills the sockets, and a
// statement waiting for them has no timeout of its own.
func (t *Table) beginSQL(holdFor time.Duration) string {
	return "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;\n" +
		catalog.Environment + ";\n" +
		fmt.Sprintf("SELECT set_config('idle_in_transaction_session_timeout', '%d', true), set_config('tcp_user_timeout', '%[1]d', true), set_config('row_security', 'off', true);\n", holdFor.Milliseconds()) +
		fmt.Sprintf("SELECT pg_advisory_xact_lock_shared(%d, %d);\n", t.lockClass(), presence)
}

// presentSQL counts the presences.
func (t *Table) presentSQL() string {
	return fmt.Sprintf("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND classid = %d AND objid = %d"+
		" AND database = (SELECT oid FROM pg_database WHERE datname = current_database());\n", t.OID, presence)
}

// lanesSQL takes free lanes, in the order given, up to limit.
func (t *Table) lanesSQL(lanes []int, limit int) string {
	return fmt.Sprintf("SELECT lane FROM unnest('{%s}'::int[]) lane WHERE pg_try_advisory_xact_lock(%d, %d + lane) LIMIT %d",
		joinInts(lanes), t.lockClass(), laneBase, limit)
}

// awaitLaneSQL waits for the lane.
func (t *Table) awaitLaneSQL(lane int, patience time.Duration) string {
	return fmt.Sprintf("SELECT set_config('lock_timeout', '%d', true);\nSELECT pg_advisory_xact_lock(%d, %d);\nSELECT set_config('lock_timeout', '0', true)",
		patience.Milliseconds(), t.lockClass(), laneBase+lane)
}

// fetchColumns is how many columns precede the table's own in fetchSQL's result:
// key, tableoid, ctid, microseconds of creation.
const fetchColumns = 4

// fetchSQL reads the first rows of the lanes and locks them. A row locked elsewhere, or
// changed since the statement began, comes with its key only. held names some lanes
// out of all, or all. Rows of the keys without are left out.
func (t *Table) fetchSQL(held []int, all, limit int, without []string) string {
	row := []string{"t.tableoid", "t.ctid", t.createdSQL()}
	for _, c := range t.Relation.Columns {
		row = append(row, "t."+pgsql.Name(c.Name))
	}
	as, again := catalog.SendAsStored(t.charset, true), ""
	if as != "" {
		again = "; SET LOCAL client_encoding TO UTF8" // for the transaction's other statements
	}
	return as + "SELECT cdc_head.cdc_key, cdc_row.* FROM (" + t.headSQL(held, all, limit, without) + ") cdc_head\n" +
		" LEFT JOIN LATERAL (SELECT " + strings.Join(row, ", ") + " FROM " + t.Name.Quoted() + " t\n" +
		"   WHERE t.ctid = cdc_head.cdc_at AND t.tableoid = cdc_head.cdc_rel AND " + t.pending + " FOR UPDATE SKIP LOCKED) cdc_row ON true" + again
}

// headSQL lists the rows to claim, passing over rows of other lanes, but over no more
// than a claim of all lanes would take. Otherwise a long backlog of a lane would be
// read through again and again by the holders of the others.
func (t *Table) headSQL(held []int, all, limit int, without []string) string {
	key := pgsql.Name(t.key)
	sql := "SELECT tableoid AS cdc_rel, ctid AS cdc_at, " + key + "::text AS cdc_key"
	rest := fmt.Sprintf(" FROM %s WHERE %s ORDER BY %s LIMIT ", t.Name.Quoted(), t.pending+t.withoutSQL(without), t.Order.sql())
	if len(held) == all {
		return sql + rest + strconv.Itoa(limit)
	}
	lane := fmt.Sprintf(", COALESCE((hashtext(%s::text COLLATE \"C\") & 2147483647) %% %d, 0) AS cdc_lane", key, all)
	return "SELECT * FROM (" + sql + lane + rest + strconv.Itoa(limit*all) + ") cdc_rows WHERE cdc_lane = ANY ('{" + joinInts(held) + "}') LIMIT " + strconv.Itoa(limit)
}

// withoutSQL leaves out rows of some keys; "" stands for NULL too.
func (t *Table) withoutSQL(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	quoted := make([]string, len(keys))
	for i, key := range keys {
		quoted[i] = " E'" + literalEscapes.Replace(key) + "'"
	}
	return " AND COALESCE(" + pgsql.Name(t.key) + "::text, '') <> ALL (ARRAY[" + strings.Join(quoted, ",") + "])"
}

// literalEscapes are for text within E'…'.
var literalEscapes = strings.NewReplacer(`\`, `\\`, "'", "''")

// createdSQL is the time of creation in microseconds since 1970. A timestamp
// without a zone counts as UTC.
func (t *Table) createdSQL() string {
	if t.CreatedAt == "" {
		return "NULL::bigint"
	}
	c := "t." + pgsql.Name(t.CreatedAt)
	return "CASE WHEN isfinite(" + c + ") THEN (extract(epoch FROM " + c + ") * 1000000)::bigint END"
}

// markSQL marks or deletes rows, given by table and place, one statement for
// each table, and commits.
func (t *Table) markSQL(places map[string][]string) string {
	var b strings.Builder
	for rel, at := range places {
		fmt.Fprintf(&b, "%s WHERE tableoid = %s AND ctid = ANY ('{\"%s\"}'::tid[]);\n", t.changeSQL(), rel, strings.Join(at, `","`))
	}
	b.WriteString("COMMIT")
	return b.String()
}

func (t *Table) changeSQL() string {
	if t.deletes {
		return "DELETE FROM " + t.Name.Quoted()
	}
	var set []string
	if t.published != "" {
		set = append(set, pgsql.Name(t.published)+" = true")
	}
	if t.publishedAt != "" {
		set = append(set, pgsql.Name(t.publishedAt)+" = now()")
	}
	return "UPDATE " + t.Name.Quoted() + " SET " + strings.Join(set, ", ")
}

func joinInts(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}
