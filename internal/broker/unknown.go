package broker

import "time"

// A broker that has just started, or has not heard of a new topic, says that it
// does not know the topic, as it says of a deleted one.
const (
	// UnknownFor is how long brokers must say they do not know a topic until it
	// counts as missing.
	UnknownFor = 2 * time.Second
	// UnknownAnswers is how many times in a row they must say so: a process
	// that was suspended may find the time over after its first question.
	UnknownAnswers = 5
)

// Unknown counts answers that a topic is unknown. The zero Unknown has heard
// none.
type Unknown struct {
	since   time.Time
	answers int
}

// Missing notes one more such answer in a row, and reports whether the topic counts as
// missing now.
func (u *Unknown) Missing() bool {
	if u.answers++; u.answers == 1 {
		u.since = time.Now()
	}
	return u.answers >= UnknownAnswers && time.Since(u.since) >= UnknownFor
}
