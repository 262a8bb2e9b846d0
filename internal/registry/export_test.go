package registry

import "time"

// SetClock has the encoder ask now for the time.
func (e *Encoder) SetClock(now func() time.Time) { e.value.now, e.key.now = now, now }
