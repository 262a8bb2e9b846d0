#!/bin/bash
# The tenants of the fleet under docker compose: a database each, with an outbox, a
# publication and a slot, as an administrator makes them once. Then an event each, every
# second. A second start keeps what is there.
set -eu
export PGOPTIONS=--client-min-messages=warning # no notes of what is there
tenants="tenant_1 tenant_2 tenant_3 tenant_4 tenant_5 tenant_6"
sql() { psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --dbname "$@"; }

for tenant in $tenants; do
	sql postgres <<-EOF
		SELECT 'CREATE DATABASE $tenant' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '$tenant') \gexec
	EOF
	sql "$tenant" --output /dev/null <<-EOF
		CREATE TABLE IF NOT EXISTS outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
			aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb);
		SELECT 'CREATE PUBLICATION cdc_outbox_$tenant FOR TABLE outbox WITH (publish = ''insert, update'')'
			WHERE NOT EXISTS (SELECT FROM pg_publication WHERE pubname = 'cdc_outbox_$tenant') \gexec
		SELECT pg_create_logical_replication_slot('cdc_outbox_$tenant', 'pgoutput')
			WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'cdc_outbox_$tenant');
	EOF
done
while sleep 1; do
	for tenant in $tenants; do
		sql "$tenant" --command "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('$tenant', floor(random() * 10)::text, 'TenantChanged', '{}')"
	done
done
