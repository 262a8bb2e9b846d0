package admin

import (
	"fmt"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/config"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// Script returns what Setup does to the database as a psql script that can be
// run again and again. It is written without a look at the database, so a
// publication that exists already is left as it is.
func Script(cfg *config.Config, opts SetupOptions) (string, error) {
	tables, err := parseTables(cfg)
	if err != nil {
		return "", err
	}
	if cfg.Source.Mode == config.ModePoll {
		return pollScript(cfg, opts, tables), nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- cdc-outbox: what the connector and those who write events need.\n"+
		"-- Run it as the owner of the database, for example: psql -v ON_ERROR_STOP=1 -f setup.sql\n"+
		"-- Not with --single-transaction: PostgreSQL creates no slot in a transaction that has written.\n"+
		"-- The server needs wal_level = logical (ALTER SYSTEM SET wal_level = 'logical'; and a restart).\n")
	for _, t := range tables {
		writeSection(&b, "Outbox table "+t.String(), createSchema(t), opts.Schema.createTable(cfg, t))
	}
	if cfg.Source.Mode == config.ModeMessage {
		writeSection(&b, "Functions that write an event as a message; another schema will do", emitScript(cfg)...)
	}
	writeSection(&b, "Publication: it must exist before the slot", guardedPublication(cfg, tables))
	if opts.Role != "" {
		writeSection(&b, "Least-privilege role; then: \\password "+opts.Role, append(guardedRole(opts.Role), grants(cfg, opts.Role, tables)...)...)
	}
	if cfg.Source.Snapshot == config.SnapshotInitial {
		writeSection(&b, "No slot: with source.snapshot: initial, whoever creates it notes in the checkpoint's store that the\n"+
			"-- rows in the tables are still to be published. `cdc-outbox setup` does, and run at its first start.")
		return b.String(), nil
	}
	writeSection(&b, "Slot: it waits until every transaction that is running has ended", guardedSlot(cfg))
	return b.String(), nil
}

func writeSection(b *strings.Builder, title string, statements ...string) {
	fmt.Fprintf(b, "\n-- %s\n", title)
	for _, s := range statements {
		if s != "" {
			b.WriteString(s + ";\n")
		}
	}
}

// createSchema is "" for public, which is there already.
func createSchema(t wal.Table) string {
	if t.Schema == "public" {
		return ""
	}
	return "CREATE SCHEMA IF NOT EXISTS " + wal.QuoteIdentifier(t.Schema)
}

// guardedPublication takes the tables for those that this script creates:
// ordinary ones with a primary key.
func guardedPublication(cfg *config.Config, tables []wal.Table) string {
	infos := make([]wal.TableInfo, len(tables))
	for i, t := range tables {
		infos[i] = wal.TableInfo{Table: t, ReplicaIdentity: true}
	}
	name := cfg.Source.Publication
	return doUnless("SELECT FROM pg_publication WHERE pubname = "+literal(name),
		wal.CreatePublicationSQL(name, infos))
}

func guardedRole(role string) []string {
	return []string{
		doUnless("SELECT FROM pg_roles WHERE rolname = "+literal(role), "CREATE ROLE "+wal.QuoteIdentifier(role)),
		alterRole(role),
	}
}

func alterRole(role string) string {
	return "ALTER ROLE " + wal.QuoteIdentifier(role) + " WITH LOGIN REPLICATION"
}

// grants are the privileges that reading the stream and the configuration ask
// for. Decoding needs none on the tables; only a snapshot reads them.
func grants(cfg *config.Config, role string, tables []wal.Table) []string {
	to := " TO " + wal.QuoteIdentifier(role)
	var sql []string
	for _, t := range tables {
		sql = append(sql, "GRANT USAGE ON SCHEMA "+wal.QuoteIdentifier(t.Schema)+to)
		if cfg.Source.Snapshot == config.SnapshotInitial {
			sql = append(sql, "GRANT SELECT ON "+t.Quoted()+to)
		}
		sql = append(sql, retentionGrants(cfg, t, to)...)
	}
	return sql
}

func guardedSlot(cfg *config.Config) string {
	name := literal(cfg.Source.Slot)
	return "SELECT pg_create_logical_replication_slot(" + name + ", " + literal(wal.Plugin) + ")\n" +
		" WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = " + name + ")"
}

// doUnless is a DO block that runs a statement unless a query finds something.
func doUnless(query, statement string) string {
	return "DO $setup$ BEGIN\n" +
		"    IF NOT EXISTS (" + query + ") THEN\n" +
		"        " + statement + ";\n" +
		"    END IF;\n" +
		"END $setup$"
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// parseTables reads source.tables, which the configuration has checked.
func parseTables(cfg *config.Config) ([]wal.Table, error) {
	tables := make([]wal.Table, len(cfg.Source.Tables))
	for i, name := range cfg.Source.Tables {
		t, err := wal.ParseTable(name)
		if err != nil {
			return nil, fmt.Errorf("source.tables: %w", err)
		}
		tables[i] = t
	}
	return tables, nil
}
