// Package digest logs what may happen once or a million times. The first of the
// kind is logged at once. After that, one line in each interval tells how many
// more there were, with the first and the last of them. At debug level each one
// is logged. An Outage does likewise for attempts that fail for as long as
// something is away.
//
// Memory is bounded: a kind that was quiet for an interval is forgotten, and
// beyond a number of kinds at a time their details are no longer told apart.
//
// Non-goals: counting, the metrics' task.
package digest

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// Interval is the time between two lines about a kind.
	Interval = time.Minute
	// kinds is how many are told apart at a time.
	kinds = 64
)

// Kind is everything summed up together. Level and Message are constants in the
// caller's code; Detail tells apart events with the same message.
type Kind struct {
	Level   zapcore.Level
	Message string
	Detail  string
}

// Log is a log of things that may be many. The methods may be called
// concurrently.
type Log struct {
	log *zap.Logger

	mu   sync.Mutex
	open map[Kind]*window
}

// window is an interval of a single kind, after the line.
type window struct {
	timer       *time.Timer
	count       int
	first, last []zap.Field
}

// New returns a Log writing to log.
func New(log *zap.Logger) *Log { return &Log{log: log, open: make(map[Kind]*window)} }

// Note logs one thing, now or with others. The fields are kept: what they point
// to must not change.
func (l *Log) Note(k Kind, fields ...zap.Field) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[k] == nil && len(l.open) >= kinds {
		k.Detail = ""
	}
	w := l.open[k]
	if w == nil {
		l.log.Log(k.Level, k.Message, fields...)
		w = &window{}
		w.timer = time.AfterFunc(Interval, func() { l.close(k, w) })
		l.open[k] = w
		return
	}
	l.log.Debug(k.Message, fields...)
	if w.count == 0 {
		w.first = fields
	}
	w.last = fields
	w.count++
}

// Flush logs what is not yet summed up. No timer of the Log runs afterwards
// until the next Note.
func (l *Log) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, w := range l.open {
		w.timer.Stop()
		l.sum(k, w)
	}
	clear(l.open)
}

// close ends an interval. Another follows if this one was not empty.
func (l *Log) close(k Kind, w *window) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[k] != w { // flushed meanwhile
		return
	}
	if w.count == 0 {
		delete(l.open, k)
		return
	}
	l.sum(k, w)
	*w = window{timer: w.timer}
	w.timer.Reset(Interval)
}

func (l *Log) sum(k Kind, w *window) {
	if w.count == 0 {
		return
	}
	of := zap.Skip()
	if k.Detail != "" {
		of = zap.String("of", k.Detail)
	}
	l.log.Log(k.Level, k.Message, zap.Int("more", w.count), of, zap.Dict("first", w.first...), zap.Dict("last", w.last...))
}
