// Package role says what an instance does now.
package role

import "time"

// The roles, as /status, the metric role and the documents have them.
const (
	Starting = "starting" // does not read yet
	Standby  = "standby"  // a warm spare: another instance holds the slot
	Active   = "active"
	Stopping = "stopping"
)

// State is a role and since when. Its owner guards it.
type State struct {
	Role  string
	Since time.Time
	// Tell is told of each change; required.
	Tell func(role string)
}

// Set reports whether the role is new.
func (s *State) Set(role string) (changed bool) {
	if s.Role == role {
		return false
	}
	s.Role, s.Since = role, time.Now()
	s.Tell(role)
	return true
}
