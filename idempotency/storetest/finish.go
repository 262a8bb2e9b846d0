package storetest

import (
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// finishRounds is more than any state needs to come to an end.
const finishRounds = 20

// finish completes the key, as proof that no message is lost. do makes a call,
// pass lets time go by.
func finish(c *client, key storage.Key, lease time.Duration, do func(call) (call, error), pass func(time.Duration)) error {
	for range finishRounds {
		request := c.request()
		request.Fingerprint, request.Lease = "", 2*lease
		request.Retention = 1000 * lease
		done, err := do(call{verb: claim, request: request})
		if err != nil {
			return err
		}
		switch a := done.answer.claim; a.Outcome {
		case storage.Duplicate:
			return nil
		case storage.Claimed:
			_, err = do(call{verb: complete, lease: a.Lease, result: "finished", retention: 1000 * lease})
		case storage.GivenUp:
			if c.operator == nil {
				return nil // the dead letter is as good
			}
			_, err = do(call{verb: release})
		default:
			pass(a.Wait)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("key %q: not completed after %d rounds", key.ID, finishRounds)
}
