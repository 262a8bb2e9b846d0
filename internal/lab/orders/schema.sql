-- The business table and the outbox table, side by side in one database.
CREATE TABLE IF NOT EXISTS orders (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text   NOT NULL,
    item     text   NOT NULL,
    total    bigint NOT NULL, -- cents
    status   text   NOT NULL  -- placed, paid, shipped
);

-- The outbox table, with the column names of Debezium's outbox event router,
-- which the connector detects. It is safe to run this again.
CREATE TABLE IF NOT EXISTS outbox (
    id            uuid         PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregatetype varchar(255) NOT NULL,               -- the topic: outbox.event.<aggregatetype>
    aggregateid   varchar(255) NOT NULL,               -- the record's key
    type          varchar(255) NOT NULL,               -- the record's header eventType
    payload       jsonb,                               -- the record's value; NULL: none
    headers       jsonb,                               -- an object of strings: more headers
    created_at    timestamptz  NOT NULL DEFAULT now()  -- to delete old rows by
);
