package admin

import (
	"fmt"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Script returns the database work of Setup as a psql script to be run again and
// again: the same statements. It is written without a look at the database:
// statements in need of a look contain it.
func Script(cfg *config.Config, opts SetupOptions) (string, error) {
	if cfg.Source.Mode == config.ModePoll {
		return pollScript(cfg, opts)
	}
	tables := cfg.Source.Tables
	var b strings.Builder
	fmt.Fprintf(&b, "-- cdc-outbox: what the connector and those who write events need.\n"+
		"-- Run it as the owner of the database, for example: psql -v ON_ERROR_STOP=1 -f setup.sql\n"+
		"-- Not with --single-transaction: PostgreSQL creates no slot in a transaction that has written.\n"+
		"-- The server needs wal_level = logical (ALTER SYSTEM SET wal_level = 'logical'; and a restart);\n"+
		"-- from PostgreSQL 19 on, replica is enough.\n")
	writeEnvironment(&b)
	for _, t := range tables {
		writeSection(&b, "Outbox table "+t.String(), refuseTwin(t), createSchema(t), opts.Schema.createTable(cfg, t))
	}
	if cfg.Source.Mode == config.ModeMessage {
		var functions []string
		for _, f := range emitFunctions(cfg) {
			functions = append(functions, f.create(cfg, emitSchema))
		}
		writeSection(&b, "Functions that write an event as a message; another schema will do", functions...)
	}
	writeSection(&b, "Publication: it must exist before the slot", catalog.EnsurePublicationSQL(cfg.Source.Publication, tables))
	if cfg.Checkpoint.Store == store.StorePostgres {
		table, _ := cfg.Checkpoint.SQLTable()
		writeSection(&b, "Checkpoint", store.TableSQL(table))
	}
	writeClaims(&b, cfg)
	if err := writeRoles(&b, cfg, opts, grants(cfg, opts.Role)); err != nil {
		return "", err
	}
	if cfg.Source.Snapshot == config.SnapshotInitial {
		writeSection(&b, "No slot: with source.snapshot: initial, run creates it at its first start, together with the\n"+
			"snapshot that it publishes. Events are kept for the connector from then on.")
		return b.String(), nil
	}
	writeSection(&b, "Slot: it waits until every transaction that is running has ended", catalog.EnsureSlotSQL(cfg.Source.Slot))
	if cfg.Checkpoint.Store != store.StoreNone {
		fmt.Fprintf(&b, "\n%s", Comment("Then: cdc-outbox adopt --yes. It notes the slot in the checkpoint, so that the first run\n"+
			"notices if the slot is dropped until then; with exactly_once, run asks for it."))
	}
	return b.String(), nil
}

// writeEnvironment begins a script with the settings the statements count on.
func writeEnvironment(b *strings.Builder) {
	writeSection(b, "Functions and operators are PostgreSQL's own; nothing is cut short, and nothing is read-only",
		catalog.ScriptEnvironment...)
}

func writeSection(b *strings.Builder, title string, statements ...string) {
	fmt.Fprintf(b, "\n%s", Comment(title))
	for _, s := range statements {
		if s != "" {
			b.WriteString(s + ";\n")
		}
	}
}

// Comment writes text as comments of SQL, even with a line break in a name.
func Comment(text string) string {
	return "-- " + strings.NewReplacer("\n", "\n-- ", "\r", " ").Replace(text) + "\n"
}

// createSchema is "" for the schema public, always there.
func createSchema(t pg.Table) string {
	if t.Schema == "public" {
		return ""
	}
	return "CREATE SCHEMA IF NOT EXISTS " + pgsql.Name(t.Schema)
}

// roleAttributes are those of the connector's role.
func roleAttributes(cfg *config.Config) string {
	if cfg.Source.Mode == config.ModePoll {
		return "LOGIN"
	}
	return "LOGIN REPLICATION"
}

// roleSQL creates or completes a role.
func roleSQL(role, attributes string, grants []string) []string {
	name := pgsql.Name(role)
	return append([]string{
		doUnless("SELECT FROM pg_roles WHERE rolname = "+pgsql.Literal(role), "CREATE ROLE "+name),
		"ALTER ROLE " + name + " WITH " + attributes,
	}, grants...)
}

// writeRoles writes everything granted to the connector's role and to the
// writer's.
func writeRoles(b *strings.Builder, cfg *config.Config, opts SetupOptions, grants []string) error {
	if opts.Role != "" {
		password, err := passwordSQL(opts.Role, opts.Password)
		if err != nil {
			return err
		}
		title := "Least-privilege role"
		if password == "" {
			title += "; then: \\password " + opts.Role
		}
		writeSection(b, title, append(roleSQL(opts.Role, roleAttributes(cfg), grants), password)...)
	}
	if opts.Writer != "" {
		writeSection(b, "The service that writes events", writerGrants(cfg, opts.Writer, emitSchema)...)
	}
	return nil
}

// passwordSQL sets the password of a role, and is "" for none. The server gets
// the stored form of the password.
func passwordSQL(role string, password setting.Secret) (string, error) {
	if password == "" {
		return "", nil
	}
	verifier, err := catalog.Verifier(password.Reveal())
	return "ALTER ROLE " + pgsql.Name(role) + " PASSWORD " + pgsql.Literal(verifier), err
}

// writerGrants are the privileges of a service writing events. The functions of
// message mode are in the schema.
func writerGrants(cfg *config.Config, role, schema string) (sql []string) {
	to := " TO " + pgsql.Name(role)
	for _, t := range cfg.Source.Tables {
		sql = append(sql, "GRANT USAGE ON SCHEMA "+pgsql.Name(t.Schema)+to, "GRANT INSERT ON "+t.Quoted()+to, grantSequences(t, role))
	}
	if cfg.Source.Mode == config.ModeMessage {
		sql = append(sql, "GRANT USAGE ON SCHEMA "+pgsql.Name(schema)+to)
		for _, f := range emitFunctions(cfg) {
			sql = append(sql, "GRANT EXECUTE ON FUNCTION "+f.signature(schema)+to)
		}
	}
	return sql
}

// grantSequences lets the role use the sequences that fill the table's columns.
// Sequences of identity columns need no right.
func grantSequences(t pg.Table, role string) string {
	return "DO " + pgsql.Dollars("setup", " DECLARE taken regclass; BEGIN\n"+
		"    FOR taken IN SELECT s.oid FROM pg_attrdef a JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = a.oid\n"+
		"                   JOIN pg_class s ON d.refclassid = 'pg_class'::regclass AND s.oid = d.refobjid AND s.relkind = 'S'\n"+
		"                  WHERE a.adrelid = to_regclass("+pgsql.Literal(t.Quoted())+") LOOP\n"+
		"        EXECUTE format('GRANT USAGE ON SEQUENCE %s TO %I', taken, "+pgsql.Literal(role)+");\n"+
		"    END LOOP;\n"+
		"END ")
}

// grants are the privileges for reading the stream as configured. Decoding needs
// none on the tables; only a snapshot and a repair read them.
func grants(cfg *config.Config, role string) []string {
	to := " TO " + pgsql.Name(role)
	sql := []string{grantConnect(role)}
	for _, t := range cfg.Source.Tables {
		sql = append(sql, "GRANT USAGE ON SCHEMA "+pgsql.Name(t.Schema)+to)
		if cfg.Source.Snapshot == config.SnapshotInitial || cfg.Errors.OnLoss == config.LossRepair {
			sql = append(sql, "GRANT SELECT ON "+t.Quoted()+to)
		}
		sql = append(sql, retentionGrants(cfg, t, to)...)
	}
	if cfg.Checkpoint.Store == store.StorePostgres {
		table, schema := cfg.Checkpoint.SQLTable()
		if schema != "" {
			sql = append(sql, "GRANT USAGE ON SCHEMA "+schema+to)
		}
		sql = append(sql, "GRANT SELECT, INSERT, UPDATE ON "+table+to)
	}
	return append(sql, claimsGrants(cfg, role)...)
}

// grantConnect lets the role connect to the database where PUBLIC may not.
func grantConnect(role string) string {
	name := pgsql.Literal(role)
	return "DO " + pgsql.Dollars("setup", " BEGIN\n"+
		"    IF NOT has_database_privilege("+name+", current_database(), 'CONNECT') THEN\n"+
		"        EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), "+name+");\n"+
		"    END IF;\n"+
		"END ")
}

// doUnless is a DO block running statements unless a query finds something.
func doUnless(query string, statements ...string) string {
	return "DO " + pgsql.Dollars("setup", " BEGIN\n"+
		"    IF NOT EXISTS ("+query+") THEN\n"+
		"        "+strings.Join(statements, ";\n        ")+";\n"+
		"    END IF;\n"+
		"END ")
}
