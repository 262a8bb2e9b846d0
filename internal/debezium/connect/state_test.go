package connect

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestAskState(t *testing.T) {
	at := worker(t).URL + "/connect/connectors/"
	login := Login{"admin", "secret@word"}
	for name, want := range map[string]struct {
		text string
		runs bool
	}{"my%20orders": {"RUNNING, task FAILED: org.apache.X: no", true}, "stopped": {"STOPPED, no task", false}} {
		state := must.Get(AskState(t.Context(), at+name, login))(t)
		if got := state.String(); got != want.text || state.Runs() != want.runs {
			t.Errorf("%s: %s, runs %v", name, got, state.Runs())
		}
	}
	for name, words := range map[string]string{"none": "404", "other": "tells no state"} {
		_, err := AskState(t.Context(), at+name, login)
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		must.Contain(t, err.Error(), words)
	}
}
