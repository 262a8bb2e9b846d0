package catalog

import (
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// hasIdentity is the SQL condition that rows of pg_class c, of its partitions
// and of the tables inheriting from it can be named in an update or delete:
// TableInfo.ReplicaIdentity. PostgreSQL refuses a published UPDATE or DELETE of
// any other table, and looks at the row's partition. A later partition has the
// default identity, and so the primary key of the partitioned table or none.
var hasIdentity = "(" + ownIdentity("c") + ` AND NOT EXISTS (
           WITH RECURSIVE below AS (
               SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = c.oid
               UNION SELECT i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.inhrelid)
           SELECT FROM below b JOIN pg_class leaf ON leaf.oid = b.inhrelid
            WHERE leaf.relkind = 'r' AND NOT ` + ownIdentity("leaf") + "))"

// ownIdentity is hasIdentity of a single table: the whole row, or a key checked
// at once. From 18 on, a key with a generated column counts as unpublished.
func ownIdentity(class string) string {
	return strings.ReplaceAll(`CASE CASE {{c}}.relkind WHEN 'p' THEN 'd' ELSE {{c}}.relreplident END
           WHEN 'n' THEN false
           WHEN 'f' THEN current_setting('server_version_num')::int < 180000 OR NOT EXISTS (
               SELECT FROM pg_attribute a WHERE a.attrelid = {{c}}.oid AND a.attgenerated <> '' AND NOT a.attisdropped)
           ELSE EXISTS (SELECT FROM pg_index x
               WHERE x.indrelid = {{c}}.oid AND x.indimmediate AND x.indisvalid
                 AND CASE WHEN {{c}}.relkind = 'p' OR {{c}}.relreplident = 'd' THEN x.indisprimary ELSE x.indisreplident END
                 AND (current_setting('server_version_num')::int < 180000 OR NOT EXISTS (
                     SELECT FROM pg_attribute a WHERE a.attrelid = {{c}}.oid AND a.attgenerated <> ''
                        AND a.attnum = ANY ((x.indkey::int2[])[0:x.indnkeyatts - 1]))))
       END`, "{{c}}", class)
}

// IdentityRemedy gives a table's rows an identity.
const IdentityRemedy = "give it, and each of its partitions, a primary key that is not DEFERRABLE and has no generated column"

// EnsurePublicationSQL creates the publication as CreatePublication does, or
// adds missing tables to an existing publication. The block looks at the tables
// itself, so it does the same for every user and at any time. The block refuses
// a table whose UPDATEs PostgreSQL would refuse from then on (SQLSTATE 55000,
// with a hint).
func EnsurePublicationSQL(name string, tables []pg.Table) string {
	if len(tables) == 0 {
		return "DO " + pgsql.Dollars("setup", " BEGIN\n"+
			"    IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = "+pgsql.Literal(name)+") THEN\n"+
			"        "+CreatePublicationSQL(name, nil)+";\n"+
			"    END IF;\n"+
			"END ")
	}
	names := make([]string, len(tables))
	literals := make([]string, len(tables))
	for i, t := range tables {
		names[i], literals[i] = t.Quoted(), pgsql.Literal(t.Quoted())
	}
	return "DO " + pgsql.Dollars("setup", strings.NewReplacer(
		"{{name}}", pgsql.Literal(name),
		"{{tables}}", strings.Join(literals, ", "),
		"{{create}}", pgsql.Literal("CREATE PUBLICATION "+pgsql.Name(name)+" FOR TABLE "+strings.Join(names, ", ")),
		"{{identity}}", hasIdentity,
		"{{await writers}}", awaitWriters,
		"{{remedy}}", IdentityRemedy,
	).Replace(ensurePublication))
}

const ensurePublication = `
DECLARE
    t record;
    named regclass[] := ARRAY[{{tables}}]::regclass[];
    pub pg_publication;
    published boolean;
    lacks regclass[] := '{}';
BEGIN
    SELECT * INTO pub FROM pg_publication WHERE pubname = {{name}};
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM pg_replication_slots WHERE plugin = 'pgoutput' AND database = current_database()) THEN
{{await writers}}        END IF;
        EXECUTE (SELECT {{create}}
                        || ' WITH (publish = ''' || CASE WHEN bool_and({{identity}}) THEN 'insert, update' || CASE WHEN bool_or(c.relkind = 'p') THEN ', delete' ELSE '' END ELSE 'insert' END || ''''
                        || CASE WHEN bool_or(c.relkind = 'p') THEN ', publish_via_partition_root = true' ELSE '' END || ')'
                   FROM pg_class c WHERE c.oid = ANY (named));
        RETURN;
    END IF;
    FOR t IN SELECT c.oid::regclass AS name, c.oid, c.relnamespace, {{identity}} AS identity
               FROM unnest(named) WITH ORDINALITY n (oid, nr) JOIN pg_class c ON c.oid = n.oid ORDER BY nr
    LOOP
        published := pub.puballtables OR EXISTS (SELECT FROM pg_publication_rel WHERE prpubid = pub.oid AND prrelid = t.oid);
        IF NOT published AND current_setting('server_version_num')::int >= 150000 THEN
            published := EXISTS (SELECT FROM pg_publication_namespace WHERE pnpubid = pub.oid AND pnnspid = t.relnamespace);
        END IF;
        IF pub.puballtables AND current_setting('server_version_num')::int >= 190000 THEN
            IF EXISTS (SELECT FROM pg_publication_rel WHERE prpubid = pub.oid AND prexcept
                                                        AND (prrelid = t.oid OR t.oid IN (SELECT relid FROM pg_partition_tree(prrelid)))) THEN
                RAISE EXCEPTION 'publication % is of all tables EXCEPT table %', pub.pubname, t.name
                    USING ERRCODE = '55000', HINT = 'take it out of the exceptions and keep the others: cdc-outbox check prints the statement';
            END IF;
        END IF;
        CONTINUE WHEN published;
        IF NOT t.identity AND (pub.pubupdate OR pub.pubdelete) THEN
            RAISE EXCEPTION 'table % has no replica identity, but publication % publishes updates or deletes: PostgreSQL would refuse them to the application', t.name, pub.pubname
                USING ERRCODE = '55000', HINT = format('ALTER PUBLICATION %I SET (publish = ''insert''); or {{remedy}}', pub.pubname);
        END IF;
        lacks := lacks || t.oid::regclass;
    END LOOP;
    IF cardinality(lacks) > 0 THEN
        named := lacks;
{{await writers}}        EXECUTE format('ALTER PUBLICATION %I ADD TABLE ', pub.pubname) || (SELECT string_agg(oid::regclass::text, ', ') FROM unnest(lacks) oid);
    END IF;
END `

// EnsureSlotSQL creates a missing slot as CreateSlot does with
// SlotOptions{Failover: true}. It must not share a transaction with writing
// statements.
func EnsureSlotSQL(name string) string {
	slot := pgsql.Literal(name) + ", " + pgsql.Literal(Plugin)
	return "DO " + pgsql.Dollars("setup", " BEGIN\n"+
		"    IF EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = "+pgsql.Literal(name)+") THEN\n"+
		"        RETURN;\n"+
		"    END IF;\n"+
		"    IF current_setting('server_version_num')::int >= 170000 THEN -- synchronised to standbys\n"+
		"        PERFORM pg_create_logical_replication_slot("+slot+", false, false, true);\n"+
		"    ELSE\n"+
		"        PERFORM pg_create_logical_replication_slot("+slot+");\n"+
		"    END IF;\n"+
		"END ")
}
