package pgtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ExampleDatabase creates a database on the server of Shared, and runs the statements
// there. ExampleDatabase is for Example functions: they have no testing.TB. The
// database stays until Main removes the server.
func ExampleDatabase(statements ...string) (url string, err error) {
	s, err := shared.Get()
	if err != nil {
		return "", fmt.Errorf("start PostgreSQL: %w", err)
	}
	name := fmt.Sprintf("example_%d", databases.Add(1))
	if err := runIn(s.URL("postgres"), "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	return s.URL(name), runIn(s.URL(name), statements...)
}

func runIn(url string, statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(ctx)
	return execute(ctx, conn, statements)
}
