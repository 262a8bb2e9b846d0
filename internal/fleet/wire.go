package fleet

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
)

// protocolType and protocol name the group's protocol to brokers, and to members of other
// versions.
const (
	protocolType = "cdc-outbox"
	protocol     = "fleet-1"
)

// announcement is a member's description of itself.
type announcement struct {
	placement.Member
	Version string `json:"version,omitempty"`
	Faults  Faults `json:"faults,omitzero"`
	// Process is another for each process with the member's name.
	Process string `json:"process"`
	// Joins counts the member's requests to join. Brokers compare announcements, and take an
	// equal announcement for no news.
	Joins int `json:"joins"`
	// Wants is an operator's wish about another member. The asker is in the group for the
	// question alone.
	Wants *wish `json:"wants,omitempty"`
}

// wish is an operator's: to drain a member, or not to any more.
type wish struct {
	Member  string `json:"member"`
	Drained bool   `json:"drained"`
}

// assignment is the leader's answer to a member.
type assignment struct {
	Run []placement.Place `json:"run,omitempty"`
	// Seen is the process known to the leader under the member's name. A process in the
	// place of an earlier one, within the session timeout, gets the other's assignment.
	Seen string `json:"seen"`
	// Drained is new to the member; nil: no change.
	Drained *bool `json:"drained,omitempty"`
	// Leader has decided, at At, in Unix milliseconds. Waits and History are of the whole fleet.
	Leader  string            `json:"leader"`
	At      int64             `json:"at"`
	Waits   []placement.Wait  `json:"waits,omitempty"`
	History placement.History `json:"history"`
}

// largest bounds the text of another member: more than any real fleet's.
const largest = 64 << 20

// encode makes the compressed form: a group is a single record of Kafka's, of at most 1 MiB.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func decode(from []byte, into any) error {
	if len(from) == 0 {
		return errors.New("nothing was sent")
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(from)), largest))
	if err != nil {
		return fmt.Errorf("decompress: %w", err)
	}
	return json.Unmarshal(text, into)
}
