package fleet

import (
	"strings"
	"time"
)

// Faults are the sources of pipelines that a member cannot follow. The pipelines of before go on.
type Faults struct {
	Count int `json:"count"`
	// Source is the first of them, and Error the reason, shortened: the group is a single record.
	Source string `json:"source"`
	Error  string `json:"error"`
}

// longestError bounds the reason.
const longestError = 200

// shortened are the faults with the reason in a single line of bounded length.
func (f Faults) shortened() Faults {
	f.Error = strings.Join(strings.Fields(f.Error), " ")
	if len(f.Error) > longestError {
		f.Error = strings.ToValidUTF8(f.Error[:longestError], "") + " …"
	}
	return f
}

// alike tells whether the faults are no news: reasons may differ in a port or a time.
func (f Faults) alike(g Faults) bool { return f.Count == g.Count && f.Source == g.Source }

// faultPause is the least time between two joins for faults alone: a source may come and go.
const faultPause = time.Minute

func (m *Membership) faults() Faults {
	if m.Faults == nil {
		return Faults{}
	}
	return m.Faults().shortened()
}

// tellFaults tells the group of other faults.
func (m *Membership) tellFaults() {
	s := &m.state
	if m.faults().alike(s.told.Faults) || time.Since(s.faulted) < faultPause {
		return
	}
	s.faulted, s.again = time.Now(), true
}
