module github.com/cdc-outbox/cdc-outbox/idempotency/postgres

go 1.26.0

require (
	github.com/cdc-outbox/cdc-outbox/idempotency v0.1.0
	github.com/cdc-outbox/cdc-outbox/internal/base v0.1.0
	github.com/jackc/pgerrcode v0.0.0-20250907135507-afb5586c32a6
	github.com/jackc/pgx/v5 v5.13.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
