package phase

import (
	"fmt"
	"slices"
)

// Check returns an error unless the table allows the change in a line of a log. For tests.
func Check(from, to string) error {
	was, next := named(from), named(to)
	if was < 0 || next < 0 {
		return fmt.Errorf("unknown phase: %q or %q", from, to)
	}
	if !was.Before(next) {
		return fmt.Errorf("the log says that %s follows %s", next, was)
	}
	return nil
}

// Trace checks a log with each change, for tests. Now is the last phase.
type Trace struct{ Now Phase }

// Change checks the next line of the log. An ended pipeline may have a successor in the
// same process.
func (t *Trace) Change(from, to string) error {
	if t.Now == Ended {
		t.Now = Connecting
	}
	if from != t.Now.String() {
		return fmt.Errorf("the log leaves out the changes from %s to %s", t.Now, from)
	}
	if err := Check(from, to); err != nil {
		return err
	}
	t.Now = named(to)
	return nil
}

func named(name string) Phase { return Phase(slices.Index(names[:], name)) }
