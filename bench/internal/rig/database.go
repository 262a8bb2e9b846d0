package rig

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/certificate"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
)

// Database is a database of a PostgreSQL server, with a connection. The methods must
// not be called concurrently.
type Database struct {
	Conn      *pgx.Conn
	URL       string // over TCP loopback: as a server on another machine is reached
	TLSURL    string // as URL, over TLS
	SocketURL string
	Version   string
	server    *pgserver.Server
	guest     bool // another Database closes the server
}

// StartDatabase starts a server as durable as a real server, with settings of
// postgresql.conf beside our own.
func StartDatabase(ctx context.Context, settings map[string]string) (*Database, error) {
	all := map[string]string{"ssl": "on", "ssl_cert_file": "bench.crt", "ssl_key_file": "bench.key", "max_wal_size": "8GB", "autovacuum": "off", "shared_buffers": "256MB"}
	maps.Copy(all, settings)
	public, key, err := certificate.SelfSigned()
	if err != nil {
		return nil, err
	}
	server, err := pgserver.Start(ctx, pgserver.Options{Durable: true, Settings: all, Files: map[string][]byte{"bench.crt": public, "bench.key": key}})
	if err != nil {
		return nil, err
	}
	db, err := open(ctx, server, "postgres")
	if err != nil {
		_ = server.Close()
	}
	return db, err
}

func open(ctx context.Context, server *pgserver.Server, name string) (*Database, error) {
	db := &Database{server: server, URL: server.URL(name) + "?sslmode=disable", TLSURL: server.URL(name) + "?sslmode=require", SocketURL: server.SocketURL(name)}
	var err error
	if db.Conn, err = pgx.Connect(ctx, db.URL); err != nil {
		return nil, err
	}
	return db, db.Conn.QueryRow(ctx, `SELECT split_part(current_setting('server_version'), ' ', 1)`).Scan(&db.Version)
}

// CreateDatabase makes another database on the server, to be closed before this
// Database.
func (db *Database) CreateDatabase(ctx context.Context, name string) (*Database, error) {
	if err := db.Exec(ctx, `CREATE DATABASE `+name); err != nil {
		return nil, err
	}
	other, err := open(ctx, db.server, name)
	if err != nil {
		return nil, err
	}
	other.guest = true
	return other, nil
}

// Close ends the connection. Close stops the server and removes its data,
// unless the server was there before this database.
func (db *Database) Close() {
	_ = db.Conn.Close(context.Background())
	if !db.guest {
		_ = db.server.Close()
	}
}

// Exec runs statements, each by itself.
func (db *Database) Exec(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := db.Conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %w", strings.SplitN(sql, "\n", 2)[0], err)
		}
	}
	return nil
}
