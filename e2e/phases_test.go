package e2e

import (
	"bufio"
	"encoding/json"
	"os"

	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"
)

// followsTheTable checks the phases in the log. A killed process may have ended
// in any phase, and the log leaves out sessions repeating the one before.
func (c *connector) followsTheTable() {
	c.t.Helper()
	log, err := os.Open(c.log)
	if err != nil {
		return // the log's directory is gone
	}
	defer log.Close()
	told := map[string]bool{} // a phase, by pipeline
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var line struct{ Msg, Pipeline, From, To string }
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		switch line.Msg {
		case "phase":
			told[line.Pipeline] = true
			if err := phase.Check(line.From, line.To); err != nil {
				c.t.Error(err)
			}
		case "streaming":
			if !told[line.Pipeline] {
				c.t.Error("streaming, and the log tells no phase")
			}
		}
	}
	if err := lines.Err(); err != nil {
		c.t.Error(err)
	}
}
