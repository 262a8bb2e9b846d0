package session

import "time"

// The roles of an instance, as /status, the metric role and the documents have them.
const (
	Starting = "starting" // does not read yet
	Standby  = "standby"  // a warm spare: another instance holds the slot
	Active   = "active"
	Stopping = "stopping"
)

// Role is the present work of an instance, and since when. The owner guards a Role.
type Role struct {
	Name  string
	Since time.Time
	// Tell is told of each change; required.
	Tell func(name string)
}

// Set reports whether the role is new.
func (r *Role) Set(name string) (changed bool) {
	if r.Name == name {
		return false
	}
	r.Name, r.Since = name, time.Now()
	r.Tell(name)
	return true
}
