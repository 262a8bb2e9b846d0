package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
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

// factsSQL asks what else has to be right.
const factsSQL = `
SELECT
	ARRAY(SELECT p::text FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS p WHERE NOT has_table_privilege($1, p)),
	pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean,
	current_setting('synchronous_commit'),
	current_setting('fsync')::boolean,
	coalesce((SELECT array_agg(attname::text ORDER BY attname) FROM pg_index
		JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
		WHERE indrelid = to_regclass($1) AND indisprimary), '{}')`

// Check asks the server whether the store can work: the table with its columns
// and key, the rights of the role, a server that accepts writes. An error says
// what to do. A warning is something that works, until the server crashes.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	if err := s.checkColumns(ctx); err != nil {
		return nil, fmt.Errorf("check table %s: %w", s.table, err)
	}
	var (
		missing, key    []string
		readOnly, fsync bool
		commit          string
	)
	err = s.db.QueryRow(ctx, factsSQL, s.table.String()).Scan(&missing, &readOnly, &commit, &fsync, &key)
	switch {
	case err != nil:
	case !slices.Equal(key, s.primaryKey()):
		err = fmt.Errorf("its primary key is (%s), not (%s): without it two may claim a key at once; create it",
			strings.Join(key, ", "), strings.Join(s.primaryKey(), ", "))
	case readOnly:
		err = errors.New("the server accepts no writes: connect to the primary, with default_transaction_read_only off")
	case len(missing) > 0:
		err = fmt.Errorf("rights are missing: GRANT %s ON %s to the role that connects", strings.Join(missing, ", "), s.table)
	}
	if err != nil {
		return nil, fmt.Errorf("check table %s: %w", s.table, err)
	}
	if commit == "off" {
		warnings = append(warnings, "synchronous_commit is off: a crash of the server forgets the last completions, whose messages are then handled again; set it to on for the store's connections")
	}
	if !fsync {
		warnings = append(warnings, "fsync is off: a crash of the server's machine may lose or corrupt everything; set it to on")
	}
	return warnings, nil
}

func (s *Store) primaryKey() []string {
	if s.options.Partitioned {
		return []string{"id", "scope", "slot"}
	}
	return []string{"id", "scope"}
}

func (s *Store) checkColumns(ctx context.Context) error {
	rows, err := s.db.Query(ctx, columnsSQL, s.table.String())
	if err != nil {
		return err
	}
	present, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	hint := fmt.Sprintf("apply DDL(%q, %t)", s.options.Table, s.options.Partitioned)
	if len(present) == 0 {
		return errors.New("there is no such table: " + hint)
	}
	want := slices.Clone(columns)
	if s.options.Partitioned {
		want = append(want, slotColumn)
	} else if slices.Contains(present, slotColumn) {
		return errors.New("it is partitioned: set Options.Partitioned")
	}
	for _, column := range want {
		if !slices.Contains(present, column) {
			return fmt.Errorf("it has no column %s: rename it and %s", column, hint)
		}
	}
	return nil
}
