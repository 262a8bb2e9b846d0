#!/bin/sh
# Runs PostgreSQL as process 1 of the image postgres, with the given arguments,
# in a data directory made as the tests' local servers have it. The files in
# /files are put into it. (The image's own entrypoint starts the server a first
# time before files could be there.)
#
# What was put there while the container was stopped is done at its next start:
# /restore/data takes the place of the data directory, and /before.sh runs in it.
set -eu

if [ ! -s "$PGDATA/PG_VERSION" ]; then
	mkdir -p "$PGDATA" /restore
	chown postgres:postgres "$PGDATA"
	printf %s "$POSTGRES_PASSWORD" >/tmp/password
	chmod 644 /tmp/password
	gosu postgres initdb --pgdata "$PGDATA" --username postgres --pwfile /tmp/password \
		--auth scram-sha-256 --encoding UTF8 --locale C --no-sync
	# Through the published port, clients come from the engine's network.
	printf 'host all,replication all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
	if [ -d /files ]; then
		install --owner=postgres --group=postgres --mode=600 --target-directory="$PGDATA" /files/*
	fi
fi
if [ -d /restore/data ]; then
	find "$PGDATA" -mindepth 1 -delete
	cp -a /restore/data/. "$PGDATA"
	chown -R postgres:postgres "$PGDATA"
	rm -rf /restore/data
fi
if [ -f /before.sh ]; then
	(cd "$PGDATA" && exec gosu postgres sh -eu /before.sh)
	rm /before.sh
fi
exec gosu postgres postgres -D "$PGDATA" "$@"
