package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
)

// Hands start and stop pipelines. The methods do not block, and are called on the goroutine of
// Membership.Run. After each end of a pipeline they call Membership.Poke.
type Hands interface {
	// Run has these pipelines run, and drains all others. A pipeline with another specification
	// than before is drained, and started anew.
	Run(places []placement.Place)
	// Drop ends all pipelines without patience: others may have them.
	Drop()
	// Holds are the pipelines started and not ended yet, also those before another start.
	Holds() []placement.Hold
}

// Metrics count the fleet's work. All methods may be called concurrently.
type Metrics interface {
	// FleetJoined sets whether the process is in the group.
	FleetJoined(is bool)
	// FleetAssigned sets how many pipelines the member has, and how many of the fleet have none.
	FleetAssigned(run, waiting int)
	// FleetMoved counts a pipeline's move, decided by the process as the leader.
	FleetMoved(reason string)
}

// Parts are the parts of a membership. All but Faults are required.
type Parts struct {
	Options Options
	// Client asks the group's coordinator.
	Client *kgo.Client
	Hands  Hands
	// Offers are the pipelines of the configuration, as they are now.
	Offers func() []placement.Offer
	// Faults are of the process's sources of pipelines, as they are now; nil: none ever. Faults
	// must not block.
	Faults func() Faults
	// Version is the program's.
	Version string
	Log     *zap.Logger
	Metrics Metrics
}

// Membership is a process's place in the group. Make a Membership with New, and call Run once.
type Membership struct {
	Parts
	wants *wish // an operator's: the membership is for no more than that
	// process tells the member from earlier ones of its name.
	process string
	poked   chan struct{}
	state   state // of the goroutine of Run
	shared  shared
}

// state is the owner's.
type state struct {
	id      broker.Membership // ID "": not known to the coordinator; generation 0: in none
	in      bool              // a member of a generation
	heard   time.Time
	dropped bool // all pipelines were told to end, as nothing was heard
	leaving bool
	drained bool
	joins   int
	told    announcement    // with the last join
	known   map[string]bool // the pipelines held here by the group's knowledge
	run     []placement.Place
	history placement.History
	retry   backoff.Series
	outage  *digest.Outage

	joining bool // a request is under way
	beating bool
	due     bool      // a heartbeat
	again   bool      // join once more
	notYet  time.Time // do not join before
	weighed time.Time // when the group was last told of another load
	faulted time.Time // when the group was last told of other faults
}

// shared is for other goroutines.
type shared struct {
	mu       sync.Mutex
	standing Standing
}

// Standing is a member's own knowledge of its place.
type Standing struct {
	Group   string `json:"group"`
	Member  string `json:"member"`
	Joined  bool   `json:"joined"`
	Drained bool   `json:"drained,omitempty"`
	Leader  string `json:"leader,omitempty"`
	// Waiting is why the process is not in the group.
	Waiting error `json:"-"`
	// Run are the pipelines of the member, and Waits those of no member yet.
	Run   []placement.Place `json:"-"`
	Waits []placement.Wait  `json:"-"`
}

// New returns a membership before its first join.
func New(p Parts) *Membership {
	m := &Membership{Parts: p, process: uuid.NewString(), poked: make(chan struct{}, 1)}
	m.state.known = map[string]bool{}
	m.state.retry = backoff.Series{Range: retryWaits}
	m.state.outage = digest.NewOutage(p.Log, "the fleet's coordinator answers again")
	m.shared.standing = Standing{Group: p.Options.Group, Member: p.Options.Name(), Waiting: errJoining}
	return m
}

var (
	errJoining = errors.New("joining the fleet")
	errSilent  = errors.New("the fleet's coordinator has not answered for fleet.session_timeout: other members may have the pipelines")
	retryWaits = backoff.Range{First: 100 * time.Millisecond, Longest: 3 * time.Second}
)

// Poke has the membership look at Hands and Offers. Poke may be called by any goroutine.
func (m *Membership) Poke() {
	select {
	case m.poked <- struct{}{}:
	default:
	}
}

// Standing returns the member's knowledge.
func (m *Membership) Standing() Standing {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	return m.shared.standing
}

func (m *Membership) tell(change func(*Standing)) {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	change(&m.shared.standing)
}

// pulse is between two heartbeats: members learn of a rebalance by the answer, so a move
// takes little longer.
func (m *Membership) pulse() time.Duration { return min(m.Options.SessionTimeout/20, time.Second) }

// Run is a member of the group until ctx ends, then drains all pipelines, leaves, and returns nil.
// The error is about a second process with the member's name. Run returns after the end of all
// pipelines.
func (m *Membership) Run(ctx context.Context) error {
	asking, hangUp := context.WithCancelCause(context.WithoutCancel(ctx))
	var asks sync.WaitGroup
	defer asks.Wait()
	defer hangUp(errors.New("the member has left the fleet"))
	joins, beats := make(chan joined, 2), make(chan beat, 1)
	tick := time.NewTicker(m.pulse())
	defer tick.Stop()
	silence := time.NewTimer(m.Options.SessionTimeout)
	defer silence.Stop()
	stop := ctx.Done()
	var fenced error
	for {
		silence.Reset(m.expire(time.Now()))
		if m.state.leaving && len(m.Hands.Holds()) == 0 {
			break
		}
		if fenced == nil {
			m.ask(asking, &asks, joins, beats)
		}
		select {
		case <-stop:
			stop = nil
			m.beginLeaving()
		case j := <-joins:
			fenced = errors.Join(fenced, m.afterJoin(j))
		case b := <-beats:
			m.state.beating = false
			fenced = errors.Join(fenced, m.afterBeat(b))
		case <-silence.C:
		case <-m.poked:
			m.look()
		case <-tick.C:
			m.state.due = true
			m.look()
		}
		if fenced != nil && !m.state.leaving {
			m.state.leaving = true
			m.Hands.Drop()
		}
	}
	hangUp(errors.New("the member leaves the fleet"))
	asks.Wait()
	m.Metrics.FleetJoined(false)
	m.tell(func(s *Standing) { s.Joined, s.Run = false, nil })
	if fenced != nil {
		return fenced
	}
	m.farewell(ctx)
	return nil
}

// ask starts the due questions.
func (m *Membership) ask(ctx context.Context, asks *sync.WaitGroup, joins chan<- joined, beats chan<- beat) {
	s := &m.state
	if s.id.Generation > 0 && s.due && !s.beating {
		s.beating, s.due = true, false
		id := s.id
		asks.Go(func() { beats <- m.beat(ctx, id) })
	}
	if s.joining || s.in && !s.again || s.leaving && !s.in || time.Now().Before(s.notYet) {
		return
	}
	s.joining, s.again = true, false
	s.joins++
	a := announcement{
		Member: placement.Member{
			Name: m.Options.Name(), Rack: m.Options.Rack, Drained: s.drained, Leaving: s.leaving,
			Offers: m.Offers(), Holds: m.Hands.Holds(),
		},
		Version: m.Version, Process: m.process, Joins: s.joins, Faults: m.faults(), Wants: m.wants,
	}
	member, history := s.id.ID, s.history
	asks.Go(func() { joins <- m.join(ctx, member, a, history, joins) })
}

// expire drops the pipelines once nothing was heard for too long, and returns when to look again.
func (m *Membership) expire(now time.Time) (again time.Duration) {
	s := &m.state
	if !s.in || s.dropped {
		return m.Options.SessionTimeout
	}
	if left := m.Options.SessionTimeout - now.Sub(s.heard); left > 0 {
		return left
	}
	s.dropped = true
	m.Log.Error("no answer of the fleet's coordinator within fleet.session_timeout; stopping all pipelines",
		zap.Duration("silence", now.Sub(s.heard)), zap.Int("pipelines", len(m.Hands.Holds())))
	m.Hands.Drop()
	m.Metrics.FleetJoined(false)
	m.tell(func(s *Standing) { s.Joined, s.Waiting = false, errSilent })
	return m.Options.SessionTimeout
}

// alive notes the coordinator's word for the membership at the time.
func (m *Membership) alive(sent time.Time) {
	s := &m.state
	if sent.After(s.heard) {
		s.heard = sent
	}
	s.outage.Over()
	if !s.dropped || time.Since(s.heard) >= m.Options.SessionTimeout {
		return
	}
	s.dropped = false
	m.Log.Info("the fleet's coordinator answers again, and this process is still a member")
	if s.joining || s.again {
		return // the group is told that nothing is held, and answers with another assignment
	}
	m.take()
}

// lose forgets a membership unknown to the coordinator.
func (m *Membership) lose(err error) {
	s := &m.state
	if s.in {
		m.Log.Error("this process is no member of the fleet any more; stopping all pipelines", zap.Error(err))
	}
	s.id, s.in, s.dropped, s.run = broker.Membership{}, false, false, nil
	m.Hands.Drop()
	m.Metrics.FleetJoined(false)
	m.tell(func(s *Standing) { s.Joined, s.Waiting, s.Run = false, err, nil })
}

// afterBeat looks at the coordinator's answer.
func (m *Membership) afterBeat(b beat) error {
	s := &m.state
	if b.id.ID != s.id.ID {
		return nil // of an earlier membership
	}
	switch {
	case b.err == nil:
		m.alive(b.sent)
	case errors.Is(b.err, kerr.RebalanceInProgress):
		m.alive(b.sent)
		s.again = s.again || b.id == s.id && !s.joining
	case errors.Is(b.err, kerr.IllegalGeneration): // a member still, whose session goes on to its end
		s.again = s.again || b.id == s.id && !s.joining
	case errors.Is(b.err, kerr.UnknownMemberID):
		m.lose(b.err)
	case errors.Is(b.err, kerr.FencedInstanceID):
		return m.fenced()
	default:
		m.failed("heartbeat", b.err)
	}
	return nil
}

// failed notes a question without a useful answer.
func (m *Membership) failed(what string, err error) {
	if m.state.outage.Failed("the fleet's coordinator cannot be asked", fmt.Errorf("%s: %w", what, m.explain(err))) {
		m.tell(func(s *Standing) {
			if !s.Joined {
				s.Waiting = m.explain(err)
			}
		})
	}
}

// explain adds the remedy.
func (m *Membership) explain(err error) error {
	var remedy string
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		remedy = fmt.Sprintf("allow Read on the group %q (fleet.group)", m.Options.Group)
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		remedy = fmt.Sprintf("group %q is of other clients: name another as fleet.group", m.Options.Group)
	case errors.Is(err, kerr.InvalidSessionTimeout):
		remedy = "set fleet.session_timeout within the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms"
	default:
		return err
	}
	return &failure.Error{Class: failure.Config, Remedy: remedy, Err: err}
}

// fenced is the error of a second process of the same name.
func (m *Membership) fenced() error {
	m.Log.Error("another process has taken this member's place in the fleet; stopping all pipelines", zap.String("member", m.Options.Name()))
	return failure.Configf("give each process a fleet.member of its own; after a restart that left the former process behind, end that",
		"another process is member %q of fleet %q", m.Options.Name(), m.Options.Group)
}

// afterJoin takes an assignment. From the answer to the join on, heartbeats are of the new
// generation, as those of the one before would not count: the leader may take longer than the
// session for the assignments, or die, and the session of no other member may end with the
// leader's.
func (m *Membership) afterJoin(j joined) error {
	s := &m.state
	if j.early {
		s.id = j.id
		return nil
	}
	s.joining = false
	switch {
	case j.err == nil:
	case errors.Is(j.err, kerr.FencedInstanceID):
		return m.fenced()
	case errors.Is(j.err, kerr.UnknownMemberID):
		m.lose(j.err)
		s.again = true
		return nil
	default:
		if s.id.ID == "" {
			s.id.ID = j.id.ID // known from now on
		}
		s.again = true
		if errors.Is(j.err, kerr.RebalanceInProgress) || errors.Is(j.err, kerr.IllegalGeneration) {
			return nil // the next generation has begun meanwhile
		}
		s.notYet = time.Now().Add(s.retry.Next())
		m.failed("join", j.err)
		return nil
	}
	s.retry.Reset()
	fresh := !s.in
	s.id, s.in, s.told, s.history = j.id, true, j.announced, j.got.History
	if j.led != nil {
		s.history = j.led.history
		m.lead(j.led)
	}
	if d := j.got.Drained; d != nil && *d != s.drained {
		m.Log.Info("an operator has changed whether this member is drained", zap.Bool("drained", *d))
		s.drained, s.again = *d, true
	}
	s.run = j.got.Run
	if j.got.Seen != j.announced.Process {
		s.again = true // the place of an earlier process, and the leader does not know the present
	}
	m.alive(j.sent)
	m.expire(time.Now())
	m.Metrics.FleetJoined(true)
	m.Metrics.FleetAssigned(len(s.run), len(j.got.Waits))
	m.tell(func(st *Standing) {
		st.Joined, st.Waiting, st.Leader, st.Drained = true, nil, j.got.Leader, s.drained
		st.Run, st.Waits = s.run, j.got.Waits
	})
	if fresh {
		m.Log.Info("joined the fleet", zap.String("group", m.Options.Group), zap.String("member", m.Options.Name()),
			zap.String("leader", j.got.Leader), zap.Int("pipelines", len(s.run)))
	}
	m.take()
	return nil
}

// lead logs the leader's decision.
func (m *Membership) lead(d *decided) {
	for _, e := range d.events {
		switch {
		case e.Began != 0 && e.Placed == 0:
			m.Metrics.FleetMoved(string(e.Reason))
			m.Log.Info("a pipeline moves", zap.String("pipeline", e.Pipeline), zap.String("from", e.From), zap.String("to", e.To), zap.String("reason", string(e.Reason)))
		case e.Began == 0:
			m.Metrics.FleetMoved(string(e.Reason))
			fallthrough
		default:
			m.Log.Info("a pipeline has a new member", zap.String("pipeline", e.Pipeline), zap.String("from", e.From), zap.String("member", e.To), zap.String("reason", string(e.Reason)))
		}
	}
}

// take has the pipelines of the assignment run, except for pipelines missing in the file, or with
// another specification there: the assignment may be an earlier process's, and the group has to
// be told.
func (m *Membership) take() {
	s := &m.state
	offered := map[string]bool{}
	for _, o := range m.Offers() {
		offered[o.Pipeline+"/"+o.Spec] = true
	}
	held := map[string]bool{}
	s.known = map[string]bool{}
	for _, h := range s.told.Holds {
		s.known[h.Pipeline] = true
	}
	for _, h := range m.Hands.Holds() {
		held[h.Pipeline+"/"+h.Spec] = true
		s.known[h.Pipeline] = true
	}
	var run []placement.Place
	for _, p := range s.run {
		s.known[p.Pipeline] = true
		if key := p.Pipeline + "/" + p.Spec; offered[key] || held[key] {
			run = append(run, p)
		} else {
			s.again = true
		}
	}
	switch {
	case s.dropped:
	case s.leaving:
		m.Hands.Run(nil)
	default:
		m.Hands.Run(run)
	}
}

// look finds news for the group: a pipeline given back, or started with another specification,
// the end of all starts, other offers, another load.
func (m *Membership) look() {
	s := &m.state
	if !s.in {
		return
	}
	keep := map[string]bool{}
	for _, p := range s.run {
		keep[p.Pipeline] = !s.leaving && !s.dropped
	}
	load, started, starting := 0.0, false, false
	for _, h := range m.Hands.Holds() {
		keep[h.Pipeline] = true
		starting = starting || h.Starting
		load += placement.Weight(h.Rate)
		at := slices.IndexFunc(s.told.Holds, func(told placement.Hold) bool { return told.Pipeline == h.Pipeline })
		if at >= 0 && !h.Changing && (s.told.Holds[at].Spec != h.Spec || s.told.Holds[at].Changing) {
			s.again = true // others wait for their turn
		}
		started = started || at >= 0 && s.told.Holds[at].Starting && !h.Starting
	}
	if started && !starting {
		s.again = true // they may move now
	}
	for name := range maps.Keys(s.known) {
		if !keep[name] {
			delete(s.known, name)
			s.again = true
		}
	}
	if !slices.Equal(m.Offers(), s.told.Offers) {
		s.again = true
	}
	m.weigh(load)
	m.tellFaults()
}

// beginLeaving drains all pipelines. The others of the fleet have them as they end.
func (m *Membership) beginLeaving() {
	m.Log.Info("leaving the fleet; draining all pipelines", zap.Int("pipelines", len(m.Hands.Holds())))
	m.state.leaving = true
	m.state.again = m.state.in
	m.Hands.Run(nil)
}

func (m *Membership) farewell(ctx context.Context) {
	if m.state.id.ID == "" {
		return
	}
	if err := m.leave(context.WithoutCancel(ctx), m.state.id); err != nil {
		m.Log.Warn("the fleet's coordinator took no leave; other members wait for the end of fleet.session_timeout", zap.Error(err))
		return
	}
	m.Log.Info("left the fleet")
}
