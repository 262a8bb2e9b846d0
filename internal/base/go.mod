module github.com/cdc-outbox/cdc-outbox/internal/base

go 1.26.0
