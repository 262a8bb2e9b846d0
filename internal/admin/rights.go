package admin

import (
	"context"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// mayRead returns why the role cannot read all rows of the table, if so. why is
// the purpose of reading.
func (s *session) mayRead(ctx context.Context, t pg.Table, why string) error {
	var may, hidden bool
	err := s.conn.QueryRow(ctx, `SELECT has_schema_privilege($1, 'USAGE') AND has_table_privilege($2, 'SELECT'), row_security_active($2)`,
		t.Schema, t.Quoted()).Scan(&may, &hidden)
	role := pgsql.Name(s.conn.Config().User)
	switch {
	case err != nil:
		return fmt.Errorf("read privileges: %w", err)
	case !may:
		return failure.Configf("GRANT USAGE ON SCHEMA "+pgsql.Name(t.Schema)+" TO "+role+"; GRANT SELECT ON "+t.Quoted()+" TO "+role+";",
			"%s, and the role may not read %s", why, t)
	case hidden:
		return failure.Configf("ALTER ROLE "+role+" WITH BYPASSRLS;",
			"%s, and row-level security would hide rows of %s from the role", why, t)
	}
	return nil
}

// hasReplication tells whether the role's attributes have the right to replicate.
func (s *session) hasReplication(ctx context.Context) (may bool, err error) {
	err = s.conn.QueryRow(ctx, `SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user`).Scan(&may)
	return may, err
}

func (s *session) grantReplication() string {
	role := pgsql.Name(s.conn.Config().User)
	return "ALTER ROLE " + role + " WITH REPLICATION; (on Amazon RDS: GRANT rds_replication TO " + role + ";)"
}

// mayReplicate asks for the right to make, read or drop a slot. Where the
// role's attributes do not show it (Amazon RDS has a separate role), a
// connection does.
func (s *session) mayReplicate(ctx context.Context, to string) error {
	may, err := s.hasReplication(ctx)
	if err != nil || may {
		return err
	}
	repl, err := s.replication(ctx)
	if err != nil {
		return failure.Configf(s.grantReplication()+", or do it as a role that may",
			"role %s may not %s slot %q: %w", pgsql.Name(s.conn.Config().User), to, s.cfg.Source.Slot, err)
	}
	catalog.Close(repl)
	return nil
}

// mayCreatePublication tells whether the role may make a publication of the
// tables.
func (s *session) mayCreatePublication(ctx context.Context, tables []catalog.TableInfo) (bool, error) {
	var may bool
	err := s.conn.QueryRow(ctx, `SELECT has_database_privilege(current_database(), 'CREATE')`).Scan(&may)
	for _, info := range tables {
		if err == nil && may {
			err = s.conn.QueryRow(ctx, `SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = $1`, info.OID).Scan(&may)
		}
	}
	if err != nil {
		return false, fmt.Errorf("read privileges: %w", err)
	}
	return may, nil
}

// mayMakePublication returns why the role may not make the missing publication
// of the tables, if so.
func (s *session) mayMakePublication(ctx context.Context, tables []catalog.TableInfo) error {
	may, err := s.mayCreatePublication(ctx, tables)
	if err != nil || may {
		return err
	}
	return fmt.Errorf("%w, and the role may not create it: that takes CREATE on the database and ownership of the tables", missingPublication(s.cfg, tables))
}

// logs returns why the server's log is not enough for a slot, if so.
func logs(s catalog.Server) error {
	if s.WALSuffices() {
		return nil
	}
	return failure.Configf("ALTER SYSTEM SET wal_level = 'logical'; then restart PostgreSQL",
		"wal_level is %s; logical decoding needs logical", s.WALLevel)
}

// roomForSlot returns why the server cannot have another slot, if so.
func roomForSlot(s catalog.Server, name string) error {
	if s.UsedSlots < s.MaxSlots {
		return nil
	}
	return failure.Configf(
		"drop a slot nobody needs (SELECT slot_name, active FROM pg_replication_slots;), or: ALTER SYSTEM SET max_replication_slots = "+fmt.Sprint(s.MaxSlots+4)+"; and restart PostgreSQL",
		"all %d replication slots are in use, and slot %q is still to be created", s.MaxSlots, name)
}
