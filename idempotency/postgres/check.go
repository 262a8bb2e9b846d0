package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// columns are the table's, in the order of their names, with their types; the
// partitioned table has slot beside.
var columns = []string{
	"attempts integer", "blocked_until timestamp with time zone", "excused integer", "expires_at timestamp with time zone",
	"fence bigint", "fingerprint text", "id text", "owner text", "reason text", "result bytea",
	"scope text", "state text", "updated_at timestamp with time zone", "vanished integer",
}

const slotColumn = "slot smallint"

const columnsSQL = `
SELECT attname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped`

// factsSQL asks for other requirements.
const factsSQL = `
SELECT
	ARRAY(SELECT p::text FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS p WHERE NOT has_table_privilege($1, p)),
	pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean,
	current_setting('synchronous_commit'),
	current_setting('fsync')::boolean,
	coalesce((SELECT array_agg(attname::text ORDER BY attname) FROM pg_index
		JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
		WHERE indrelid = to_regclass($1) AND indisprimary), '{}'),
	EXISTS (SELECT FROM pg_class WHERE relpersistence <> 'p'
		AND (oid = to_regclass($1) OR oid IN (SELECT relid FROM pg_partition_tree(to_regclass($1))))),
	row_security_active(to_regclass($1)) AND NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = to_regclass($1) AND polpermissive)`

// formsSQL has the store's values in forms dependent on settings, as text in
// pgx.
const formsSQL = `SELECT '\x00ff'::bytea, clock_timestamp()`

// Check implements storage.Checker: the table with the columns and key, the
// rights of the role, a server accepting and keeping writes.
func (s *Store) Check(ctx context.Context) ([]storage.Problem, error) {
	if problems := s.checkPooler(ctx); len(problems) > 0 {
		return problems, nil // the other questions may be lost there, too
	}
	problems, err := s.checkColumns(ctx)
	if err != nil || len(problems) > 0 {
		return problems, explainCheck(s.table, err)
	}
	var (
		missing, key     []string
		readOnly, fsync  bool
		unlogged, hidden bool
		commit           string
	)
	err = s.db.QueryRow(ctx, factsSQL, s.table.String()).Scan(&missing, &readOnly, &commit, &fsync, &key, &unlogged, &hidden)
	if err != nil {
		return nil, explainCheck(s.table, err)
	}
	add := func(fatal bool, text, remedy string) {
		problems = append(problems, storage.Problem{Fatal: fatal, Text: text, Remedy: remedy})
	}
	if want := s.primaryKey(); !slices.Equal(key, want) {
		add(true, fmt.Sprintf("the primary key of table %s is (%s), not (%s): without it two may claim a key at once",
			s.table, strings.Join(key, ", "), strings.Join(want, ", ")), "create it")
	}
	if readOnly {
		add(true, "the server accepts no writes", "connect to the primary, with default_transaction_read_only off")
	}
	if len(missing) > 0 {
		add(true, "rights are missing", fmt.Sprintf("GRANT %s ON %s to the role that connects", strings.Join(missing, ", "), s.table))
	}
	if hidden {
		add(true, fmt.Sprintf("table %s has row-level security, and no policy for the role that connects: it sees no row, and may write none", s.table),
			fmt.Sprintf("ALTER TABLE %s DISABLE ROW LEVEL SECURITY, or give the role a policy for all rows", s.table))
	}
	if unlogged {
		add(false, fmt.Sprintf("table %s, or a partition of it, is UNLOGGED: a crash of the server forgets all keys, whose messages are then handled again", s.table),
			fmt.Sprintf("ALTER TABLE %s SET LOGGED, and so each partition", s.table))
	}
	if !s.readsForms(ctx) {
		add(true, "pgx cannot read bytes or times in the form in which the connection has them (bytea_output, DateStyle): a duplicate with a result stands for ever",
			"ALTER ROLE … SET bytea_output = 'hex', and DateStyle = 'ISO'; or another default_query_exec_mode than simple_protocol")
	}
	if commit == "off" {
		add(false, "synchronous_commit is off: a crash of the server forgets the last completions, whose messages are then handled again",
			"set it to on for the store's connections")
	}
	if !fsync {
		add(false, "fsync is off: a crash of the server's machine may lose or corrupt everything", "set it to on")
	}
	return problems, nil
}

// readsForms tells whether pgx reads the store's values.
func (s *Store) readsForms(ctx context.Context) bool {
	var (
		bytes []byte
		at    time.Time
	)
	return s.db.QueryRow(ctx, formsSQL).Scan(&bytes, &at) == nil || ctx.Err() != nil
}

func explainCheck(table tableName, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("check table %s: %w", table, explain(err))
}

func (s *Store) primaryKey() []string {
	if s.options.Partitioned {
		return []string{"id", "scope", "slot"}
	}
	return []string{"id", "scope"}
}

// checkColumns finds the first problem only: the others follow.
func (s *Store) checkColumns(ctx context.Context) ([]storage.Problem, error) {
	rows, err := s.db.Query(ctx, columnsSQL, s.table.String())
	if err != nil {
		return nil, err
	}
	present, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	found := func(text, remedy string) ([]storage.Problem, error) {
		return []storage.Problem{{Fatal: true, Text: text, Remedy: remedy}}, nil
	}
	remedy := fmt.Sprintf("apply Schema(Options{Table: %q, Partitioned: %t})", s.options.Table, s.options.Partitioned)
	if len(present) == 0 {
		return found(fmt.Sprintf("there is no table %s", s.table), remedy)
	}
	want := slices.Clone(columns)
	if s.options.Partitioned {
		want = append(want, slotColumn)
	} else if slices.Contains(present, slotColumn) {
		return found(fmt.Sprintf("table %s is partitioned", s.table), "set Options.Partitioned")
	}
	for _, column := range want {
		if !slices.Contains(present, column) {
			return found(fmt.Sprintf("table %s has no column %s", s.table, column), "rename the table, and "+remedy)
		}
	}
	return nil, nil
}
