CREATE OR REPLACE FUNCTION {name}(
    aggregate_type text, aggregate_id text, type text, payload {payload},
    headers jsonb DEFAULT NULL, id uuid DEFAULT NULL
) RETURNS uuid
    LANGUAGE plpgsql VOLATILE SECURITY INVOKER
    SET search_path = pg_catalog, pg_temp
AS $emit$
-- Writes an event as a message into the log, for cdc-outbox in message mode.
-- The content is what internal/base/envelope describes.
DECLARE
    event_id uuid  := COALESCE($6, gen_random_uuid());
    unset    bytea := int4send(-1);
    ids      bytea := convert_to(event_id::text, 'UTF8');
    route    bytea := convert_to($1, 'UTF8');
    key      bytea := convert_to($2, 'UTF8');
    kind     bytea := convert_to($3, 'UTF8');
    body     bytea := {body};
    more     bytea := convert_to($5::text, 'UTF8');
    name     text;
    value    jsonb;
BEGIN
    IF COALESCE($1, '') = '' THEN
        RAISE EXCEPTION 'event without aggregate_type' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'It chooses the topic.';
    ELSIF COALESCE($2, '') = '' THEN
        RAISE EXCEPTION 'event without aggregate_id' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'It is the record''s key: without one the order of events would be lost.';
    ELSIF COALESCE($3, '') = '' THEN
        RAISE EXCEPTION 'event without type' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Consumers find it in a header.';
    ELSIF $4 IS NULL AND NOT {tombstones} THEN
        RAISE EXCEPTION 'event without payload' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'event.tombstone_on_empty_payload allows NULL; then repeat: cdc-outbox setup.';
    ELSIF jsonb_typeof($5) <> 'object' THEN
        RAISE EXCEPTION 'headers are no JSON object' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Write them as {"name": "value"}.';
    END IF;
    IF $5 IS NOT NULL THEN
        FOR name, value IN SELECT * FROM jsonb_each($5) LOOP
            IF name IN ({reserved}) OR starts_with(name, 'cdc-') THEN
                RAISE EXCEPTION 'header name "%" is reserved', name USING ERRCODE = 'invalid_parameter_value';
            ELSIF jsonb_typeof(value) IN ('object', 'array') THEN
                RAISE EXCEPTION 'header "%" is an object or array', name USING ERRCODE = 'invalid_parameter_value',
                    HINT = 'Write its value as a string.';
            END IF;
        END LOOP;
    END IF;
    PERFORM pg_logical_emit_message(true, {prefix},
        decode({format}, 'hex')
        || int4send(length(ids)) || ids
        || int4send(length(route)) || route
        || int4send(length(key)) || key
        || int4send(length(kind)) || kind
        || COALESCE(int4send(length(body)) || body, unset)
        || COALESCE(int4send(length(more)) || more, unset));
    RETURN event_id;
END $emit$
