package broker

import "time"

// A broker just started, or without news of a new topic, answers as after the
// topic's deletion: the topic is unknown.
const (
	// UnknownFor is how long a topic must be unknown until it counts as missing.
	UnknownFor = 2 * time.Second
	// UnknownAnswers is the least number of such answers in a row: for a process
	// that was suspended the time may be over after the first question.
	UnknownAnswers = 5
)

// Unknown counts answers that a topic is unknown. The zero Unknown has heard
// none.
type Unknown struct {
	since   time.Time
	answers int
}

// Missing notes another such answer in a row, and reports whether the topic now counts as
// missing.
func (u *Unknown) Missing() bool {
	if u.answers++; u.answers == 1 {
		u.since = time.Now()
	}
	return u.answers >= UnknownAnswers && time.Since(u.since) >= UnknownFor
}
