package digest

import (
	"regexp"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

const (
	// soon is between the first line about an outage and the next; each later
	// distance is twice the one before, and at most rare.
	soon = 30 * time.Second
	rare = 10 * time.Minute
	// causes is how many are told apart in an outage.
	causes = 16
)

// Outage logs attempts that fail for as long as something is away. The first
// failure is logged at once, and each new cause; the others, at growing
// distances, as a single line with their number. At debug level each one is
// logged. The end is a single line. The methods may be called concurrently.
type Outage struct {
	log  *zap.Logger
	over string // the message at the end

	mu       sync.Mutex
	since    time.Time // the first failure; zero: nothing is away
	failed   int
	told     map[string]bool // causes logged
	next     time.Time       // when a known cause is logged again
	distance time.Duration
}

// NewOutage returns an Outage writing to log. The end has the message over.
func NewOutage(log *zap.Logger, over string) *Outage { return &Outage{log: log, over: over} }

// Failed notes an attempt that failed with err, whose remedy is logged as well.
// It returns whether that was worth a line.
func (o *Outage) Failed(message string, err error, fields ...zap.Field) (told bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.since.IsZero() {
		o.since, o.told, o.distance = now, make(map[string]bool), soon
		o.next = now.Add(soon)
	}
	o.failed++
	fields = append([]zap.Field{zap.Error(err)}, fields...)
	if remedy := failure.RemedyOf(err); remedy != "" {
		fields = append(fields, zap.String("remedy", remedy))
	}
	if o.failed > 1 {
		fields = append(fields, zap.Int("failed_attempts", o.failed), zap.Duration("since", now.Sub(o.since).Round(time.Second)))
	}
	cause := message + withoutNumbers(err.Error())
	known := o.told[cause] || len(o.told) >= causes
	if known && now.Before(o.next) {
		o.log.Debug(message, fields...)
		return false
	}
	o.told[cause] = true
	if !now.Before(o.next) {
		o.distance = min(2*o.distance, rare)
		o.next = now.Add(o.distance)
	}
	o.log.Warn(message, fields...)
	return true
}

// Over notes a success. Over returns whether an outage ends.
func (o *Outage) Over() (ends bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return false
	}
	o.log.Info(o.over, zap.Int("failed_attempts", o.failed), zap.Duration("after", time.Since(o.since).Round(time.Millisecond)))
	o.since, o.failed = time.Time{}, 0
	return true
}

// number is a number with its unit, the port of an address, or a part of a
// position.
var number = regexp.MustCompile(`\b[0-9][0-9A-Za-z]*`)

// withoutNumbers is a text in which a cause always looks the same: an error of
// a connection has the local port, others have a position or a duration.
func withoutNumbers(text string) string { return number.ReplaceAllString(text, "") }
