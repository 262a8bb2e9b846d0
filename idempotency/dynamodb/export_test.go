package dynamodb

import "time"

// Exactly makes the store take the server's Date, and the local clock's speed,
// for exact: a test can make them so.
func (s *Store) Exactly() *Store {
	s.clock.resolution, s.clock.drift = 0, 0
	return s
}

// Unknown returns how much is not known of the server's clock; false before the
// first answer.
func (s *Store) Unknown() (time.Duration, bool) {
	now, ok := s.clock.read()
	return now.latest.Sub(now.earliest), ok
}

// MaxResultBytes bounds a result.
const MaxResultBytes = maxResultBytes
