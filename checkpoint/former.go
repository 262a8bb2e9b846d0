package checkpoint

import (
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Former is a checkpoint of the same tables or messages under another name: another key,
// perhaps of another slot. Nobody goes on from the checkpoint now.
type Former struct {
	Key string
	Checkpoint
}

// Names are the settings that lead to the checkpoint.
func (f *Former) Names() string {
	return fmt.Sprintf("source.slot: %s and checkpoint.key: %s", f.Slot, f.Key)
}

// Unmended is the error of an accepted gap noted in the checkpoint, which a checkpoint under
// another name would not have; nil: there is none.
func (f *Former) Unmended() error {
	if f.Accepted == nil {
		return nil
	}
	return failure.Configf("set "+f.Names()+" again, and close the gap: `cdc-outbox repair --publish` beside run, or `cdc-outbox repair --give-up --yes`; then change the names. If another connector has the gap, let that one run meanwhile",
		"a gap was %s: its events may be missing, and it is noted in the checkpoint under the key %q only, of slot %q, which nobody reads now", f.Accepted, f.Key, f.Slot)
}
