package stream

import "time"

// limits are how long things may take, and how often they are looked at.
type limits struct {
	// store bounds a save or a load. A store that does not answer has then
	// failed, which is counted and shown, and holds up neither the first save of
	// the next session nor a spare.
	store time.Duration
	// spareLook is how often a spare asks its checkpoint store, and spareSilence
	// how long that may give no answer until the spare counts as one that could
	// not take over.
	spareLook, spareSilence time.Duration
	// elsewhereLook is how often a spare compares slot and checkpoint, and
	// elsewhere how long the checkpoint must stay behind the slot, and as it is,
	// until that is a verdict: longer than a network file system shows an old file.
	elsewhereLook, elsewhere time.Duration
	// monitor is how often slot and publication are looked at, and quiet how often
	// a position is saved that moved by less than saveBytes and past none of our
	// events.
	monitor, quiet time.Duration
	// stalled is how long one of the stages may stand still, with work before it,
	// until readiness says so. It is longer than quiet and a look of the
	// monitor together.
	stalled time.Duration
	// close bounds the last checkpoint, and then the last standby status: a stop
	// waits no longer for a store or a server that does not answer.
	close time.Duration
}

// usual are those of every pipeline but in tests.
var usual = limits{
	store:         10 * time.Second,
	spareLook:     3 * time.Second,
	spareSilence:  8 * time.Second,
	elsewhereLook: 30 * time.Second,
	elsewhere:     90 * time.Second,
	monitor:       2 * time.Second,
	quiet:         5 * time.Second,
	stalled:       12 * time.Second,
	close:         3 * time.Second,
}
