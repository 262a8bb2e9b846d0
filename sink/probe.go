package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/beat"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// Pace is the rhythm of a Probe. A silent cluster shows Silence after the last
// answer, also while a question is open. A single failed question shows nothing.
type Pace struct {
	Every, Timeout, Silence time.Duration
	// Again replaces Every after a failed question, until the silence shows.
	Again time.Duration
	// Refused replaces Every after a refused login: each may count towards
	// the lock of an account.
	Refused time.Duration
	// Login is the time between two trial logins of a spare; 0: none.
	Login time.Duration
}

// UsualPace is the pace outside tests. With the page's second, an outage is
// visible within five seconds, although nobody writes. A question has 1.5 s until
// then, time enough to ask three brokers.
var UsualPace = Pace{Every: 2 * time.Second, Timeout: 3 * time.Second, Silence: 3500 * time.Millisecond,
	Again: 500 * time.Millisecond, Refused: 6 * time.Second, Login: 15 * time.Second}

// errOpen is the reason of silence while a question is open.
var errOpen = errors.New("no answer yet")

// Probe looks for outages of the cluster, and for topics in use that cannot be
// written to: a sink without events would notice neither. Probe has a separate
// client and so hinders no delivery: one lasting connection to a broker, and a
// few for some minutes after a broker did not answer.
type Probe struct {
	// Paused is called by Run when this process has not run for so long: no
	// broker's fault. Paused is optional, and set before Run.
	Paused func(time.Duration)

	ask    func(context.Context) ([]error, error)
	client kmsg.Requestor // for other questions
	close  func()
	pace   Pace
	open   error // errOpen with the remedy
	begun  time.Time
	// heard is the time of a broker's last answer, in nanoseconds since begun;
	// 0: none. The wall clock may jump.
	heard atomic.Int64
	// resumed is the end of the process's last pause, likewise.
	resumed atomic.Int64
	excused bool // a pause since the last answer was excused; Run's own
	topics  *topicWatch
	login   *login
}

func newProbe(ask func(context.Context) ([]error, error), end func(), pace Pace) *Probe {
	return &Probe{ask: ask, close: end, pace: pace, open: errOpen, begun: time.Now()}
}

// NewProbe returns a probe of the cluster of cfg, which must have passed
// validation, and of the topics always in use. NewProbe opens no connection.
func NewProbe(cfg Options, pace Pace, always ...Use) (*Probe, error) {
	cluster, err := newAsker(cfg)
	if err != nil {
		return nil, err
	}
	watch := newTopicWatch(cfg, pace.Silence, always)
	watch.client = broker.Impatient{Client: cluster.client}
	ask := func(ctx context.Context) ([]error, error) {
		cluster.uses = watch.uses(time.Now())
		if err := cluster.ask(ctx); err != nil {
			return nil, err
		}
		return watch.judge(ctx, cluster.broker, cluster.uses, cluster.topics, time.Now()), nil
	}
	p := newProbe(ask, cluster.client.Close, pace)
	p.open, p.topics, p.client = Unreachable(cfg, errOpen), watch, watch.client
	p.login = &login{cfg: cfg, every: pace.Login, tried: time.Now()} // the probe's client logs in now
	return p, nil
}

// Used tells the probe that events go to the topic. Used may be called from
// several goroutines and does not block.
func (p *Probe) Used(topic string) { p.topics.note(topic, time.Now()) }

// Answered tells the probe of a broker's answer to another client: where events
// get through, no lost question means an outage. Answered may be called from
// several goroutines and does not block.
func (p *Probe) Answered() { p.heard.Store(max(1, int64(time.Since(p.begun)))) }

// Close gives the client up, after Run has returned. A nil Probe may be closed.
func (p *Probe) Close() {
	if p != nil {
		p.close()
	}
}

// Run asks until ctx ends. After each question Run calls report: with nil while
// brokers answer, with a reason and perhaps a remedy after Pace.Silence without
// an answer, and not at all in between. If Silence ends during a question or
// before the next, report is called then. After each answer Run calls topics with
// the troubles of the topics in use that have lasted for Silence. Run it once.
func (p *Probe) Run(ctx context.Context, report func(error), topics func([]error)) {
	type outcome struct {
		topics []error
		err    error
	}
	answers := make(chan outcome, 1)
	var asking sync.WaitGroup
	defer asking.Wait()
	next, alarm := newAlarm(0), newAlarm(p.pace.Silence)
	defer next.Stop()
	defer alarm.Stop()
	var last error
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			p.noticePause(next, alarm)
			next.due = time.Now().Add(p.pace.Timeout) // of the answer
			asking.Go(func() {
				troubles, err := p.once(ctx)
				answers <- outcome{troubles, err}
			})
			continue
		case is := <-answers:
			if ctx.Err() != nil {
				return
			}
			p.noticePause(next, alarm)
			if last = is.err; last == nil {
				p.excused = false
				p.Answered()
				topics(is.topics)
			}
			next.set(p.wait(last))
			p.tell(report, last)
		case <-alarm.C:
			p.noticePause(next, alarm)
			if p.silent() >= p.pace.Silence {
				p.tell(report, cmp.Or(last, p.open))
			}
			alarm.due = time.Time{}
		}
		if left := p.pace.Silence - p.silent(); left > 0 {
			alarm.set(left)
		}
	}
}

// alarmClock is a timer with the time when the ring, or another event, is due.
type alarmClock struct {
	*time.Timer
	due time.Time // zero: nothing is due
}

func newAlarm(d time.Duration) *alarmClock {
	return &alarmClock{time.NewTimer(d), time.Now().Add(d)}
}

func (a *alarmClock) set(d time.Duration) {
	a.Reset(d)
	a.due = time.Now().Add(d)
}

// pausedAfter is the delay of Run from which the process counts as paused:
// stopped, suspended with the machine, or without a processor.
const pausedAfter = time.Second

// noticePause excuses brokers if Run comes late for a due event: a process that
// does not run hears nobody. Only one pause between two answers is excused, so
// an outage also shows on a machine that is always late.
func (p *Probe) noticePause(clocks ...*alarmClock) {
	var late time.Duration
	for _, c := range clocks {
		if !c.due.IsZero() {
			late = max(late, time.Since(c.due))
		}
	}
	if late < pausedAfter || p.excused {
		return
	}
	p.excused = true
	p.resumed.Store(int64(time.Since(p.begun)))
	if p.Paused != nil {
		p.Paused(late)
	}
}

// silent is the time without an answer to anybody while this process ran.
func (p *Probe) silent() time.Duration {
	return time.Since(p.begun) - time.Duration(max(p.heard.Load(), p.resumed.Load()))
}

// wait is the wait after a question with this outcome.
func (p *Probe) wait(err error) time.Duration {
	switch {
	case isRefusal(err):
		return p.pace.Refused
	case err != nil && p.silent() < p.pace.Silence:
		return p.pace.Again
	}
	return beat.Within(p.pace.Every)
}

// tell reports the cluster's state after err, the outcome of the last question.
func (p *Probe) tell(report func(error), err error) {
	switch silent := p.silent(); {
	case silent >= p.pace.Silence:
		what := "no broker has answered for"
		if isRefusal(err) {
			what = "brokers have refused the connector for"
		}
		report(fmt.Errorf("%s %s: %w", what, silent.Round(time.Second), err))
	case p.heard.Load() != 0:
		report(nil)
	}
}

func (p *Probe) once(ctx context.Context) (topics []error, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.pace.Timeout, fmt.Errorf("no broker answered within %s", p.pace.Timeout))
	defer cancel()
	return p.ask(ctx)
}
