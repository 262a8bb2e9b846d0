package admin

import (
	"fmt"
	"io"
	"sync"
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
