package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
)

const (
	publication  = "bench"
	slotTimeout  = 2 * time.Minute
	backlogLimit = 20 * time.Minute
)

// postgres is the server with the outbox.
type postgres struct {
	server  *pgserver.Server
	conn    *pgx.Conn
	url     string
	version string
}

func startPostgres(ctx context.Context) (*postgres, error) {
	server, err := pgserver.Start(ctx, pgserver.Options{Durable: true, Settings: map[string]string{
		"max_wal_size": "8GB", "autovacuum": "off", "shared_buffers": "256MB", "max_connections": "200",
	}})
	if err != nil {
		return nil, err
	}
	db := &postgres{server: server, url: server.URL("postgres")}
	if err := db.create(ctx); err != nil {
		db.close()
		return nil, err
	}
	return db, nil
}

func (db *postgres) close() {
	if db.conn != nil {
		_ = db.conn.Close(context.Background())
	}
	_ = db.server.Close() // which removes the data
}

func (db *postgres) create(ctx context.Context) (err error) {
	if db.conn, err = pgx.Connect(ctx, db.url); err != nil {
		return err
	}
	if err := db.exec(ctx,
		// Debezium's documentation, "Basic outbox table".
		`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL,
			aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb NOT NULL)`,
		`CREATE PUBLICATION `+publication+` FOR TABLE outbox WITH (publish = 'insert')`,
		backlogSQL,
	); err != nil {
		return err
	}
	return db.conn.QueryRow(ctx, `SELECT split_part(current_setting('server_version'), ' ', 1)`).Scan(&db.version)
}

func (db *postgres) exec(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := db.conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %w", strings.SplitN(sql, "\n", 2)[0], err)
		}
	}
	return nil
}

const backlogSQL = `CREATE PROCEDURE backlog(txs int, per_tx int, size int) LANGUAGE plpgsql AS $$
BEGIN
	FOR t IN 1..txs LOOP
		INSERT INTO outbox SELECT gen_random_uuid(), 'order', (random() * 10000)::int::text, 'OrderPlaced',
			jsonb_build_object('order', t * per_tx + n, 'note', repeat(md5((t * per_tx + n)::text), size / 32))
			FROM generate_series(1, per_tx) n;
		COMMIT;
	END LOOP;
END $$`

// backlog is what there is to drain: it begins at a slot, of which readers get
// copies, and ends at a position.
type backlog struct {
	slot, end string
	events    int64
}

// fill commits a backlog.
func (db *postgres) fill(ctx context.Context, o options) (backlog, error) {
	b := backlog{slot: "bench_backlog", events: int64(o.rows / o.perTx * o.perTx)}
	ctx, cancel := context.WithTimeout(ctx, backlogLimit)
	defer cancel()
	if err := db.createSlot(ctx, b.slot); err != nil {
		return b, err
	}
	if err := db.exec(ctx,
		`SET synchronous_commit = off`, // only here: nobody reads yet
		fmt.Sprintf(`CALL backlog(%d, %d, %d)`, o.rows/o.perTx, o.perTx, o.payload),
		`RESET synchronous_commit`,
	); err != nil {
		return b, err
	}
	if err := db.conn.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&b.end); err != nil {
		return b, err
	}
	return b, db.exec(ctx, `CHECKPOINT`)
}

func (db *postgres) createSlot(ctx context.Context, name string) error {
	_, err := db.conn.Exec(ctx, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, name)
	return err
}

// copySlot makes a slot at the backlog's beginning.
func (db *postgres) copySlot(ctx context.Context, from backlog, name string) error {
	_, err := db.conn.Exec(ctx, `SELECT pg_copy_logical_replication_slot($1, $2)`, from.slot, name)
	return err
}

// dropSlot drops the slot as soon as nobody streams from it.
func (db *postgres) dropSlot(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), slotTimeout)
	defer cancel()
	if err := db.awaitActive(ctx, name, false, func(context.Context) error { return nil }); err != nil {
		return err
	}
	_, err := db.conn.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, name)
	return err
}

// awaitActive returns when somebody streams from the slot, or nobody does. alive
// tells why that will not be.
func (db *postgres) awaitActive(ctx context.Context, slot string, want bool, alive func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, slotTimeout,
		fmt.Errorf("slot %s is not active=%t after %s", slot, want, slotTimeout))
	defer cancel()
	for {
		var active bool
		err := db.conn.QueryRow(ctx,
			`SELECT active FROM pg_replication_slots WHERE slot_name = $1`, slot).Scan(&active)
		if err != nil || active == want {
			return err
		}
		if err := alive(ctx); err != nil {
			return err
		}
		if err := backoff.Sleep(ctx, looking); err != nil {
			return err
		}
	}
}
