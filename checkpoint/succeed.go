package checkpoint

// Succeeding returns c, the database as seen by a new holder of the slot, with the lasting
// parts of the checkpoint found (nil: none) and a higher epoch.
//
// A replay must show the landmark of found again. A landmark of other tables, or of a
// checkpoint before the slot's position (see Verify), proves nothing: c is then believed.
func (c Checkpoint) Succeeding(found *Checkpoint) Checkpoint {
	if found == nil {
		return c
	}
	c.Epoch = found.Epoch + 1
	c.Snapshot, c.Initial, c.Doubtful, c.Horizon, c.Published = found.Snapshot, found.Initial, found.Doubtful, found.Horizon, found.HasPublished()
	c.Quarantine, c.Settled, c.Accepted = found.Quarantine, found.Settled, found.Accepted
	if found.Skip.Commit >= c.LSN { // not passed yet
		c.Skip = found.Skip
	}
	if found.Scope == c.Scope && found.LSN == c.LSN && !found.Landmark.IsZero() {
		c.Landmark = found.Landmark
	}
	return c
}
