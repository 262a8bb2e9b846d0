module github.com/cdc-outbox/cdc-outbox/examples/clients

go 1.26.0

require (
	github.com/cdc-outbox/cdc-outbox/idempotency v0.1.0
	github.com/cdc-outbox/cdc-outbox/internal/base v0.1.0 // indirect
	github.com/confluentinc/confluent-kafka-go/v2 v2.11.1
	github.com/segmentio/kafka-go v0.4.51
	go.uber.org/goleak v1.3.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.2 // indirect
	github.com/bits-and-blooms/bloom/v3 v3.7.1 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
)

replace (
	github.com/cdc-outbox/cdc-outbox/idempotency => ../../idempotency
	github.com/cdc-outbox/cdc-outbox/internal/base => ../../internal/base
)
