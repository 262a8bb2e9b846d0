package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
)

const publication = "cdc_outbox"

// database is the server with the backlogs, one behind the other in its log.
type database struct {
	server   *pgserver.Server
	conn     *pgx.Conn
	url      string
	version  string
	backlogs []backlog
}

// backlog is what there is to drain.
type backlog struct {
	mode string
	slot string // at its beginning; those that are read are copies
	end  string // LSN
}

func startDatabase(ctx context.Context, o options) (*database, error) {
	server, err := pgserver.Start(ctx, pgserver.Options{Durable: true, Settings: map[string]string{
		"max_wal_size": "8GB", "autovacuum": "off", "shared_buffers": "256MB",
	}})
	if err != nil {
		return nil, err
	}
	db := &database{server: server, url: server.URL("postgres")}
	if o.socket {
		db.url = server.SocketURL("postgres")
	}
	if err := db.fill(ctx, o); err != nil {
		db.close()
		return nil, fmt.Errorf("fill backlog: %w", err)
	}
	return db, nil
}

func (db *database) close() {
	if db.conn != nil {
		_ = db.conn.Close(context.Background())
	}
	_ = db.server.Close()
}

// fill writes the backlogs.
func (db *database) fill(ctx context.Context, o options) error {
	var err error
	if db.conn, err = pgx.Connect(ctx, db.url); err != nil {
		return err
	}
	if err := db.exec(ctx,
		`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL,
			aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb NOT NULL)`,
		`CREATE TABLE other (id bigserial PRIMARY KEY, note text)`,
		`CREATE PUBLICATION `+publication+` FOR TABLE outbox WITH (publish = 'insert, update')`,
		fieldSQL, backlogSQL,
	); err != nil {
		return err
	}
	modes := []string{o.mode}
	if o.mode == modeBoth {
		modes = []string{modeTable, modeMessage}
	}
	for _, mode := range modes {
		b := backlog{mode: mode, slot: "bench_" + mode}
		if err := db.exec(ctx,
			fmt.Sprintf(`SELECT pg_create_logical_replication_slot('%s', 'pgoutput')`, b.slot),
			fmt.Sprintf(`CALL backlog(%d, %d, %d, %d, %t)`, o.rows/o.perTx, o.perTx, o.payload, o.others, mode == modeMessage),
		); err != nil {
			return err
		}
		// Before the checkpoint, whose record the connector confirms at leisure.
		if err := db.conn.QueryRow(ctx, `SELECT pg_current_wal_lsn()::text`).Scan(&b.end); err != nil {
			return err
		}
		if err := db.exec(ctx, `CHECKPOINT`); err != nil {
			return err
		}
		db.backlogs = append(db.backlogs, b)
	}
	return db.conn.QueryRow(ctx, `SHOW server_version`).Scan(&db.version)
}

func (db *database) exec(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := db.conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %w", strings.SplitN(sql, "\n", 2)[0], err)
		}
	}
	return nil
}

// The events are the same in both modes: a row, or a message with its fields in
// the envelope that internal/envelope describes.
const (
	fieldSQL = `CREATE FUNCTION field(value text) RETURNS bytea LANGUAGE sql AS
		$$ SELECT int4send(octet_length(value)) || convert_to(value, 'UTF8') $$`

	backlogSQL = `CREATE PROCEDURE backlog(txs int, per_tx int, size int, others int, as_messages boolean) LANGUAGE plpgsql AS $$
	DECLARE
		payloads jsonb[];
	BEGIN
		FOR t IN 1..txs LOOP
			payloads := ARRAY(SELECT jsonb_build_object('order', t * per_tx + n, 'note', repeat(md5((t * per_tx + n)::text), size / 32))
				FROM generate_series(1, per_tx) n);
			IF as_messages THEN
				PERFORM pg_logical_emit_message(true, 'outbox', '\x01'::bytea || field(gen_random_uuid()::text) || field('order') ||
					field((random() * 10000)::int::text) || field('OrderPlaced') || field(p::text) || int4send(-1))
					FROM unnest(payloads) p;
			ELSE
				INSERT INTO outbox SELECT gen_random_uuid(), 'order', (random() * 10000)::int::text, 'OrderPlaced', p
					FROM unnest(payloads) p;
			END IF;
			INSERT INTO other (note) SELECT 'nothing of interest' FROM generate_series(1, per_tx * others);
			COMMIT;
		END LOOP;
	END $$`
)

func (db *database) describe() string {
	transport := "Unix socket"
	if !strings.Contains(db.url, "host=") {
		transport = "TCP loopback"
	}
	return "PostgreSQL " + db.version + ", " + transport
}

// copySlot makes a slot at the backlog's beginning.
func (db *database) copySlot(ctx context.Context, from backlog, name string) error {
	_, err := db.conn.Exec(ctx, `SELECT pg_copy_logical_replication_slot($1, $2)`, from.slot, name)
	return err
}

func (db *database) dropSlot(ctx context.Context, name string) error {
	_, err := db.conn.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, name)
	return err
}

// waitConfirmed returns when the slot's confirmed position has reached the end.
func (db *database) waitConfirmed(ctx context.Context, slot, end string) error {
	return db.wait(ctx, `SELECT confirmed_flush_lsn >= $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1`, slot, end)
}

// waitReleased returns when nobody streams from the slot.
func (db *database) waitReleased(ctx context.Context, slot string) error {
	return db.wait(ctx, `SELECT NOT active FROM pg_replication_slots WHERE slot_name = $1`, slot)
}

// wait returns when the boolean query holds.
func (db *database) wait(ctx context.Context, query string, args ...any) error {
	return rig.Await(ctx, 10*time.Millisecond, func() (holds bool, err error) {
		err = db.conn.QueryRow(ctx, query, args...).Scan(&holds)
		return holds, err
	})
}
