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
	may, hidden, err := catalog.MayRead(ctx, s.conn, t)
	role := pgsql.Name(s.conn.Config().User)
	switch {
	case err != nil:
		return err
	case !may:
		return failure.Configf("GRANT USAGE ON SCHEMA "+pgsql.Name(t.Schema)+" TO "+role+"; GRANT SELECT ON "+t.Quoted()+" TO "+role+";",
			"%s, and the role may not read %s", why, t)
	case hidden:
		return failure.Configf("ALTER ROLE "+role+" WITH BYPASSRLS;",
			"%s, and row-level security would hide rows of %s from the role", why, t)
	}
	return nil
}

func (s *session) grantReplication() string {
	role := pgsql.Name(s.conn.Config().User)
	return "ALTER ROLE " + role + " WITH REPLICATION; (on Amazon RDS: GRANT rds_replication TO " + role + ";)"
}

// mayReplicate asks for the right to make, read or drop a slot, by a connection
// where the role's attributes lack the right.
func (s *session) mayReplicate(ctx context.Context, to string) error {
	may, err := catalog.HasReplication(ctx, s.conn)
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

// mayMakePublication returns why the role may not make the missing publication
// of the tables, if so.
func (s *session) mayMakePublication(ctx context.Context, tables []catalog.TableInfo) error {
	may, err := catalog.MayCreatePublication(ctx, s.conn, tables)
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
