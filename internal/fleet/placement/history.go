package placement

import "slices"

// remembered bounds the history.
const remembered = 40

// Event is a move of the past.
type Event struct {
	Move
	// Began is when the pipeline's member was told to let go, and Placed when the next was told to
	// take it, in Unix milliseconds. Without a member to let go, Began is 0.
	Began  int64 `json:"began,omitempty"`
	Placed int64 `json:"placed,omitempty"`
}

// History is the knowledge of earlier decisions, and goes from decision to decision.
type History struct {
	// Events are the last moves, the latest last.
	Events []Event `json:"events,omitempty"`
	// Owners are the last known members of all pipelines.
	Owners map[string]string `json:"owners,omitempty"`
	// Rates are the last known. The next leader knows none: a pipeline without a holder weighs
	// little, until its member tells.
	Rates map[string]float64 `json:"-"`
}

// Note adds the moves begun and ended by the decision at the time, in Unix milliseconds, and
// returns them.
func (h *History) Note(members []Member, d Decision, at int64) (events []Event) {
	for _, m := range d.Placed {
		e := Event{Move: m, Placed: at}
		if i := h.begun(m.Pipeline); i >= 0 {
			e.Move, e.Began = h.Events[i].Move, h.Events[i].Began
			e.To = m.To
			h.Events = slices.Delete(h.Events, i, i+1)
		} else if e.From = h.Owners[m.Pipeline]; e.From == "" || e.From == m.To {
			continue // new, or where it was: the process has started anew
		} else {
			e.Reason = Gone
		}
		events = append(events, e)
	}
	for _, m := range d.Moves {
		e := Event{Move: m, Began: at}
		if m.From == m.To {
			e.Placed = at
		}
		events = append(events, e)
	}
	h.Events = append(h.Events, events...)
	h.Events = slices.Clone(h.Events[max(0, len(h.Events)-remembered):])
	h.remember(members, d)
	return events
}

// begun is the index of the pipeline's move under way; -1: none.
func (h *History) begun(pipeline string) int {
	return slices.IndexFunc(h.Events, func(e Event) bool { return e.Pipeline == pipeline && e.Placed == 0 })
}

func (h *History) remember(members []Member, d Decision) {
	rates, owners := map[string]float64{}, map[string]string{}
	for _, m := range members {
		for _, o := range m.Offers {
			rates[o.Pipeline], owners[o.Pipeline] = h.Rates[o.Pipeline], h.Owners[o.Pipeline]
		}
	}
	for _, m := range members {
		for _, held := range m.Holds {
			rates[held.Pipeline] = held.Rate
		}
	}
	for member, run := range d.Run {
		for _, p := range run {
			owners[p.Pipeline] = member
		}
	}
	h.Rates, h.Owners = rates, owners
}
