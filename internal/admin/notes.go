package admin

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
)

// notes takes lines about the progress, from any goroutine.
type notes struct {
	mu sync.Mutex // guards to
	to io.Writer
}

func (n *notes) note(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintln(n.to, line)
}

// publishing returns a function for the numbers of events published and of all, a note
// each audit.TellEvery.
func (n *notes) publishing(what string) func(done, all int64) {
	began := time.Now()
	told := began
	return func(done, all int64) {
		if time.Since(told) < audit.TellEvery {
			return
		}
		told = time.Now()
		n.note(fmt.Sprintf("published %d of %d %s%s", done, all, what, audit.Estimate(time.Since(began), done, all-done)))
	}
}
