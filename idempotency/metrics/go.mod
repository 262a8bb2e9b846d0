module github.com/cdc-outbox/cdc-outbox/idempotency/metrics

go 1.26.0

require (
	github.com/cdc-outbox/cdc-outbox/idempotency v0.1.0
	github.com/cdc-outbox/cdc-outbox/idempotency/consumer v0.1.0
	github.com/prometheus/client_golang v1.25.0
	github.com/twmb/franz-go v1.22.3
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cdc-outbox/cdc-outbox/internal/base v0.1.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/twmb/franz-go/pkg/kadm v1.20.0 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.15.1 // indirect
	golang.org/x/sys v0.48.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
