package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// noTx is the transaction of a context without a transaction.
type noTx struct{}

var _ pgx.Tx = noTx{}

func (noTx) Begin(context.Context) (pgx.Tx, error) { return nil, errNoTransaction }
func (noTx) Commit(context.Context) error          { return errNoTransaction }
func (noTx) Rollback(context.Context) error        { return errNoTransaction }
func (noTx) LargeObjects() pgx.LargeObjects        { return closed.LargeObjects() }
func (noTx) Conn() *pgx.Conn                       { return nil }

func (noTx) CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error) {
	return 0, errNoTransaction
}

func (noTx) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return noBatch{} }

func (noTx) Prepare(context.Context, string, string) (*pgconn.StatementDescription, error) {
	return nil, errNoTransaction
}

func (noTx) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errNoTransaction
}

func (noTx) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return noRows{}, errNoTransaction
}
func (noTx) QueryRow(context.Context, string, ...any) pgx.Row { return noRows{} }

// noRows are the rows of noTx: an error.
type noRows struct{}

func (noRows) Scan(...any) error                            { return errNoTransaction }
func (noRows) Err() error                                   { return errNoTransaction }
func (noRows) Close()                                       {}
func (noRows) Next() bool                                   { return false }
func (noRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (noRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (noRows) Values() ([]any, error)                       { return nil, errNoTransaction }
func (noRows) RawValues() [][]byte                          { return nil }
func (noRows) Conn() *pgx.Conn                              { return nil }
func (noRows) TypeMap() *pgtype.Map                         { return nil }

// noBatch is the batch of noTx: an error.
type noBatch struct{}

func (noBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, errNoTransaction }
func (noBatch) Query() (pgx.Rows, error)         { return noRows{}, errNoTransaction }
func (noBatch) QueryRow() pgx.Row                { return noRows{} }
func (noBatch) Close() error                     { return errNoTransaction }
func (noBatch) Tx() pgx.Tx                       { return nil }
