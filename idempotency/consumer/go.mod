module github.com/cdc-outbox/cdc-outbox/idempotency/consumer

go 1.26.0

require (
	github.com/cdc-outbox/cdc-outbox/idempotency v0.1.0
	github.com/cdc-outbox/cdc-outbox/internal/base v0.1.0
	github.com/twmb/franz-go v1.22.3
	github.com/twmb/franz-go/pkg/kadm v1.20.0
	github.com/twmb/franz-go/pkg/kmsg v1.15.1
	go.uber.org/goleak v1.3.0
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
)
