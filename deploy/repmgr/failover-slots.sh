#!/bin/sh
# Keeps failover slots through a change of primary: docs/how-to/patroni.md.
# usage: failover-slots.sh CONNINFO, as repmgr's event_notification_command
primary=$(psql -XAtq "$1" -c "SELECT conninfo FROM repmgr.nodes WHERE active AND type = 'primary'")
slots=$(psql -XAtq "$primary" -c "SELECT string_agg(slot_name, ',') FROM pg_replication_slots WHERE failover")
psql -XAtq "$1" -c 'SELECT conninfo FROM repmgr.nodes' | while read -r node; do
  psql -Xq -v slots="$slots" "$node" <<'SQL'
SELECT format('ALTER SYSTEM SET primary_conninfo = %L', setting || ' dbname=postgres')
  FROM pg_settings
 WHERE name = 'primary_conninfo' AND pg_is_in_recovery() AND setting <> '' AND setting !~ 'dbname' \gexec
SELECT pg_reload_conf();
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
 WHERE pg_is_in_recovery() AND failover AND NOT synced AND NOT active
   AND slot_name = ANY (string_to_array(:'slots', ','));
SQL
done
