module github.com/cdc-outbox/cdc-outbox/idempotency

go 1.26.0

require (
	github.com/bits-and-blooms/bloom/v3 v3.7.1
	github.com/cdc-outbox/cdc-outbox/internal/base v0.1.0
	github.com/hashicorp/golang-lru/v2 v2.0.7
	go.uber.org/goleak v1.3.0
)

require (
	github.com/stretchr/testify v1.12.1 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
)

require github.com/bits-and-blooms/bitset v1.24.2 // indirect
