package pgtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ExampleDatabase creates an empty database on the server of Shared, for an
// Example function, which has no testing.TB. It stays until Main removes the
// server.
func ExampleDatabase() (url string, err error) {
	s, err := shared.Get()
	if err != nil {
		return "", fmt.Errorf("start PostgreSQL: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return "", fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(ctx)
	name := fmt.Sprintf("example_%d", databases.Add(1))
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return s.URL(name), nil
}
