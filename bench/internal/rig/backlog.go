package rig

import (
	"context"
	"fmt"
)

// Publication is the publication of the outbox alone, as made by `cdc-outbox setup`:
// everything written to other tables is in the log and not in the publication.
const Publication = "cdc_outbox"

// Load describes a backlog's content.
type Load struct {
	Rows, PerTx int  // of the outbox
	Payload     int  // bytes
	Others      int  // rows of another table, about 200 bytes each, for each outbox row
	Messages    bool // messages without a table, of the same events
	Topics      int  // values of aggregatetype, order0 and so on; 0: order alone
	Hot         bool // every second event has the same key
	Documents   bool // payloads with members of many types, instead of a long text
	Partitions  int  // of each topic; 0: those of the benchmark
}

// Events is how many there are: of whole transactions.
func (l Load) Events() int { return l.Rows / l.PerTx * l.PerTx }

// String describes the load.
func (l Load) String() string {
	what := "rows"
	if l.Messages {
		what = "messages"
	}
	text := fmt.Sprintf("%d %s of %d+100 bytes, %d per transaction", l.Events(), what, l.Payload, l.PerTx)
	if l.Topics > 0 {
		text += fmt.Sprintf(", of %d topics", l.Topics)
	}
	if l.Partitions > 0 {
		text += fmt.Sprintf(", into %d partitions", max(1, l.Topics)*l.Partitions)
	}
	if l.Documents {
		text += ", documents of many members"
	}
	if l.Hot {
		text += ", half of them with one key"
	}
	if l.Others > 0 {
		text += fmt.Sprintf(", with %d rows of another table each", l.Others)
	}
	return text
}

// Backlog is a part of the log for readers. Backlog begins at a slot, copied for each
// reader, and ends at a position.
type Backlog struct {
	Slot, End string
	Load
}

// CreateOutbox makes the table of Debezium's documentation ("Basic outbox
// table"), another table, and Fill's functions.
func (db *Database) CreateOutbox(ctx context.Context) error {
	return db.Exec(ctx,
		`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL,
			aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb NOT NULL)`,
		`CREATE TABLE other (id bigserial PRIMARY KEY, note text)`,
		`CREATE PUBLICATION `+Publication+` FOR TABLE outbox WITH (publish = 'insert')`,
		payloadSQL, documentSQL, fieldSQL, backlogSQL)
}

const (
	// A large payload compresses about as well as JSON does; PostgreSQL moves such
	// payloads out of the row. A small payload repeats a single pattern.
	payloadSQL = `CREATE FUNCTION payload(event int, size int) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_build_object('order', event, 'note', CASE WHEN size < 2000 THEN repeat(md5(event::text), size / 32)
			ELSE (SELECT string_agg(repeat(md5(event || '.' || part), 3), '') FROM generate_series(1, size / 96) part) END) $$`

	// All documents of a size have members of the same names and types. Fractions are
	// exact in binary.
	documentSQL = `CREATE FUNCTION document(event int, size int) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_build_object('order', event, 'paid', event % 2 = 0, 'total', (event % 1000 * 0.25)::numeric(10, 2),
			'customer', jsonb_build_object('id', event % 10000, 'name', md5(event::text)),
			'lines', (SELECT jsonb_agg(jsonb_build_object('sku', left(md5(event || '.' || line), 12), 'quantity', 1 + line,
				'price', ((event + line) % 1000 * 0.25)::numeric(10, 2))) FROM generate_series(1, greatest(2, (size - 130) / 60)) line)) $$`

	// A message is of the same fields, in the envelope of internal/base/envelope.
	fieldSQL = `CREATE FUNCTION field(value text) RETURNS bytea LANGUAGE sql AS
		$$ SELECT int4send(octet_length(value)) || convert_to(value, 'UTF8') $$`

	backlogSQL = `CREATE PROCEDURE backlog(txs int, per_tx int, size int, others int, as_messages boolean, topics int, hot boolean, documents boolean) LANGUAGE plpgsql AS $$
	BEGIN
		FOR t IN 1..txs LOOP
			IF as_messages THEN
				PERFORM pg_logical_emit_message(true, 'outbox', '\x01'::bytea || field(gen_random_uuid()::text) || field('order') ||
					field((random() * 10000)::int::text) || field('OrderPlaced') || field(payload(t * per_tx + n, size)::text) || int4send(-1))
					FROM generate_series(1, per_tx) n;
			ELSE
				INSERT INTO outbox SELECT gen_random_uuid(), CASE topics WHEN 0 THEN 'order' ELSE 'order' || (t * per_tx + n) % topics END,
						CASE WHEN hot AND n % 2 = 0 THEN 'hot' ELSE (random() * 10000)::int::text END, 'OrderPlaced', CASE WHEN documents THEN document(t * per_tx + n, size) ELSE payload(t * per_tx + n, size) END
					FROM generate_series(1, per_tx) n;
			END IF;
			IF others > 0 THEN
				INSERT INTO other (note) SELECT repeat('nothing of interest ', 9) FROM generate_series(1, per_tx * others);
			END IF;
			COMMIT;
		END LOOP;
	END $$`
)

// Fill commits a backlog behind a new slot of the name.
func (db *Database) Fill(ctx context.Context, slot string, l Load) (Backlog, error) {
	b := Backlog{Slot: slot, Load: l}
	ctx, cancel := context.WithTimeout(ctx, backlogLimit)
	defer cancel()
	if err := db.CreateSlot(ctx, slot); err != nil {
		return b, err
	}
	if err := db.Exec(ctx,
		`SET synchronous_commit = off`, // only here: nobody reads yet
		fmt.Sprintf(`CALL backlog(%d, %d, %d, %d, %t, %d, %t, %t)`,
			l.Rows/l.PerTx, l.PerTx, l.Payload, l.Others, l.Messages, l.Topics, l.Hot, l.Documents),
		`RESET synchronous_commit`,
	); err != nil {
		return b, err
	}
	// Before the checkpoint: readers confirm the checkpoint's record at leisure.
	if err := db.Conn.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&b.End); err != nil {
		return b, err
	}
	return b, db.Exec(ctx, `CHECKPOINT`)
}
