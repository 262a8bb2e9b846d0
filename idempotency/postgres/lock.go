package postgres

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// The purposes of a key's advisory locks.
const (
	handlerLock = "idempotency"
	claimLock   = "idempotency claim"
)

// lockHash returns the advisory lock of a key: 64 bits of a hash, because an
// advisory lock has no more.
func lockHash(purpose string, table tableName, k storage.Key) int64 {
	sum := sha256.Sum256([]byte(purpose + "\x00" + table.String() + "\x00" + k.Scope + "\x00" + k.ID))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
