package connect

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// State is how a worker sees a connector.
type State struct {
	Connector string // RUNNING, PAUSED, STOPPED, FAILED, UNASSIGNED
	Tasks     []Task
}

// Task is a connector's.
type Task struct {
	State string
	// Trace is the first line of the error, if the task has failed.
	Trace string
}

// Runs tells whether the connector runs, or would, after an error or a rebalance.
func (s State) Runs() bool { return s.Connector != "STOPPED" && s.Connector != "PAUSED" }

func (s State) String() string {
	var b strings.Builder
	b.WriteString(s.Connector)
	for _, t := range s.Tasks {
		fmt.Fprintf(&b, ", task %s", t.State)
		if t.Trace != "" {
			b.WriteString(": " + t.Trace)
		}
	}
	if len(s.Tasks) == 0 {
		b.WriteString(", no task")
	}
	return b.String()
}

// AskState gets the state of the connector at the address http://HOST:8083/connectors/NAME.
func AskState(ctx context.Context, address string, login Login) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := newClient(address, login)
	if err != nil {
		return State{}, err
	}
	text, err := c.get(ctx, c.connector+"/status")
	if err != nil {
		return State{}, err
	}
	var answer struct {
		Connector struct{ State string }
		Tasks     []struct{ State, Trace string }
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Connector.State == "" {
		return State{}, fmt.Errorf("the worker's answer tells no state of the connector")
	}
	state := State{Connector: answer.Connector.State}
	for _, t := range answer.Tasks {
		first, _, _ := strings.Cut(t.Trace, "\n")
		state.Tasks = append(state.Tasks, Task{t.State, first})
	}
	return state, nil
}
