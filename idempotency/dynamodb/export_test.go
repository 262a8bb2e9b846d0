package dynamodb

// Exactly makes the store take the server's Date, and the local clock's speed,
// for exact: a test can make them so.
func (s *Store) Exactly() *Store {
	s.clock.resolution, s.clock.drift = 0, 0
	return s
}

// ExactDate is for a server's Date that is exact, and a local clock that is not.
func (s *Store) ExactDate() *Store {
	s.clock.resolution = 0
	return s
}
