// Package completion says which completions a store takes.
package completion

import (
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Check returns an error unless the lease can be completed with a result of at most
// so many bytes: one that wraps storage.ErrBadRequest for a retention that can be
// none, and storage.ErrResultTooLarge.
func Check(lease storage.Lease, result []byte, most int, retention time.Duration) error {
	if err := storage.CheckRetention(retention); err != nil {
		return err
	}
	if len(result) > most {
		return fmt.Errorf("complete %s: %w: %d bytes, more than %d", lease.Key, storage.ErrResultTooLarge, len(result), most)
	}
	return nil
}
