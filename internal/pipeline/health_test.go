package pipeline

import (
	"encoding/json"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Readers of /status need not look for words in the error.
func TestStatusTellsLossFromASetting(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{failure.Configf("raise it", "all replication slots are in use"), false},
		{failure.Lossf("accept it", "slot \"s\" does not exist"), true},
	} {
		var h health
		h.fail(tt.err)
		var status struct{ Loss bool }
		must.OK(t, json.Unmarshal(must.Get(json.Marshal(h.Status()))(t), &status))
		if status.Loss != tt.want {
			t.Errorf("%v: loss is %v", tt.err, status.Loss)
		}
	}
}
