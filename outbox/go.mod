module github.com/cdc-outbox/cdc-outbox/outbox

go 1.26.0

require (
	github.com/cdc-outbox/cdc-outbox/internal/base v0.1.0
	github.com/google/uuid v1.6.0
)
