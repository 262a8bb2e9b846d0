package dynamodb

import "time"

// SetResolution says how exact the server's Date is, for a test that makes it
// more exact than it is.
func (s *Store) SetResolution(d time.Duration) { s.clock.resolution = d }
