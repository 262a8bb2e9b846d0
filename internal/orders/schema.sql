-- The business table and the outbox table, side by side in one database.
CREATE TABLE IF NOT EXISTS orders (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text   NOT NULL,
    item     text   NOT NULL,
    total    bigint NOT NULL, -- cents
    status   text   NOT NULL  -- placed, paid, shipped
);

-- Debezium's column names, which the connector detects.
CREATE TABLE IF NOT EXISTS outbox (
    id            uuid         PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregatetype varchar(255) NOT NULL,
    aggregateid   varchar(255) NOT NULL,
    type          varchar(255) NOT NULL,
    payload       jsonb        NOT NULL
);
