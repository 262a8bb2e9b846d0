-- What a database administrator does once: roles, tables, publication, slot.
-- Run by the image as superuser in POSTGRES_DB.
CREATE ROLE orders LOGIN PASSWORD 'orders';
CREATE ROLE cdc LOGIN REPLICATION PASSWORD 'cdc';
GRANT CREATE ON SCHEMA public TO orders;

-- The service owns its tables.
SET ROLE orders;
\i /schema/orders.sql
RESET ROLE;

-- As `cdc-outbox setup --print` writes it. Decoding needs no right to read the
-- table, so cdc gets none.
CREATE PUBLICATION cdc_outbox FOR TABLE public.outbox WITH (publish = 'insert, update');

-- The connector would create the slot itself, but events from before its start
-- would not be published.
SELECT pg_create_logical_replication_slot('cdc_outbox', 'pgoutput');
