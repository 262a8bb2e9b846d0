package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// world is a fleet in which members come and go, drain, read new files and get other loads, at
// random. The members obey each decision, slowly.
type world struct {
	t       *testing.T
	random  *rand.Rand
	now     int64
	limit   int
	members map[string]*Member
	rates   map[string]float64
	names   []string // of pipelines
	files   int
	history History
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 7)), members: map[string]*Member{}, rates: map[string]float64{}}
	w.limit = 1 + w.random.IntN(3)
	for i := range 1 + w.random.IntN(40) {
		w.names = append(w.names, fmt.Sprintf("p%03d", i))
	}
	for _, name := range w.names {
		w.rates[name] = w.load()
	}
	w.files = 1
	for range 1 + w.random.IntN(6) {
		w.join()
	}
	return w
}

func (w *world) load() float64 {
	if w.random.IntN(3) > 0 {
		return 0
	}
	return float64(w.random.IntN(300))
}

func (w *world) join() {
	name := fmt.Sprintf("m%d", w.random.IntN(8))
	m := &Member{Name: name, Rack: []string{"", "a", "b"}[w.random.IntN(3)]}
	w.read(m)
	w.members[name] = m // a restarted member holds nothing
}

// read has the member read the present file.
func (w *world) read(m *Member) {
	m.Offers = nil
	for i, name := range w.names {
		m.Offers = append(m.Offers, Offer{Pipeline: name, Spec: fmt.Sprint(w.files), Loaded: w.now, Rack: []string{"", "a", "b"}[i%3]})
	}
}

// happen changes something at random.
func (w *world) happen() {
	all := slices.Sorted(maps.Keys(w.members))
	some := func() *Member { return w.members[all[w.random.IntN(len(all))]] }
	if len(all) == 0 {
		w.join()
		return
	}
	switch w.random.IntN(8) {
	case 0:
		w.join()
	case 1:
		if len(all) > 1 {
			delete(w.members, some().Name)
		}
	case 2:
		m := some()
		m.Drained = !m.Drained
	case 3:
		w.files++
		w.read(some())
	case 4:
		w.rates[w.names[w.random.IntN(len(w.names))]] = w.load()
	case 5:
		if len(all) > 1 {
			some().Leaving = true
		}
	}
}

// decide decides, judges the decision, and has the members obey. A share of what has to stop
// stops at once.
func (w *world) decide() Decision {
	w.now++
	var all []Member
	for _, name := range slices.Sorted(maps.Keys(w.members)) {
		m := w.members[name]
		for i := range m.Holds {
			m.Holds[i].Rate = w.rates[m.Holds[i].Pipeline]
		}
		all = append(all, *m)
	}
	w.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	d := Decide(all, w.history.Rates, w.limit)
	w.judge(all, d)
	w.history.Note(all, d, w.now)
	for _, m := range w.members {
		w.obey(m, d.Run[m.Name])
	}
	return d
}

func (w *world) obey(m *Member, run []Place) {
	var kept []Hold
	for _, h := range m.Holds {
		at := slices.IndexFunc(run, func(p Place) bool { return p.Pipeline == h.Pipeline })
		if at >= 0 && !h.Stopping {
			h.Changing = (h.Changing || h.Spec != run[at].Spec) && w.random.IntN(2) == 0
			h.Spec = run[at].Spec
			h.Starting = h.Changing || h.Starting && w.random.IntN(2) == 0
			run = slices.Delete(slices.Clone(run), at, at+1)
			kept = append(kept, h)
			continue
		}
		h.Stopping = true
		if w.random.IntN(2) == 0 {
			kept = append(kept, h)
		}
	}
	for _, p := range run {
		if !slices.ContainsFunc(kept, func(h Hold) bool { return h.Pipeline == p.Pipeline }) {
			kept = append(kept, Hold{Pipeline: p.Pipeline, Spec: p.Spec, Starting: true})
		}
	}
	m.Holds = kept
	if m.Leaving && len(m.Holds) == 0 {
		delete(w.members, m.Name)
	}
}

// judge checks the invariants of a decision.
func (w *world) judge(all []Member, d Decision) {
	w.t.Helper()
	held, stopping, starting := map[string][]string{}, map[string]bool{}, map[string]bool{}
	for _, m := range all {
		for _, h := range m.Holds {
			starting[h.Pipeline] = starting[h.Pipeline] || h.Starting
			held[h.Pipeline] = append(held[h.Pipeline], m.Name)
			stopping[h.Pipeline] = stopping[h.Pipeline] || h.Stopping || h.Changing
		}
	}
	newest := map[string]Offer{}
	able := map[string]bool{}
	for _, m := range all {
		for _, o := range m.Offers {
			if Newer(o, newest[o.Pipeline]) {
				newest[o.Pipeline] = o
			}
		}
	}
	for _, m := range all {
		for _, o := range m.Offers {
			able[o.Pipeline] = able[o.Pipeline] || !m.Leaving && o.Spec == newest[o.Pipeline].Spec
		}
	}
	owner := map[string]string{}
	for _, m := range all {
		for _, p := range d.Run[m.Name] {
			if other := owner[p.Pipeline]; other != "" {
				w.t.Fatalf("%s is in the lists of %s and %s", p.Pipeline, other, m.Name)
			}
			owner[p.Pipeline] = m.Name
			holders := held[p.Pipeline]
			if len(holders) > 0 && !slices.Contains(holders, m.Name) {
				w.t.Fatalf("%s goes to %s while %v hold it", p.Pipeline, m.Name, holders)
			}
			if len(holders) == 0 && p.Spec != newest[p.Pipeline].Spec {
				w.t.Fatalf("%s begins at %s with an old specification", p.Pipeline, m.Name)
			}
		}
	}
	for _, name := range w.names {
		if owner[name] == "" && len(held[name]) == 0 && able[name] {
			w.t.Fatalf("%s is nobody's, and could be run", name)
		}
	}
	for _, m := range d.Moves {
		if starting[m.Pipeline] && len(held[m.Pipeline]) == 1 && (m.Reason == Balance || m.Reason == Zone) {
			w.t.Fatalf("%s moves while it starts: %s", m.Pipeline, m.Reason)
		}
	}
	if len(d.Moves)+len(stopping) == 0 {
		return
	}
	moving := 0
	for _, s := range stopping {
		if s {
			moving++
		}
	}
	if len(d.Moves) > max(0, w.limit-moving) {
		w.t.Fatalf("%d moves begin while %d go on, with a limit of %d", len(d.Moves), moving, w.limit)
	}
}

// settle has everybody read the newest file, and decides until nothing moves. It fails if
// that takes too many decisions.
func (w *world) settle() {
	w.t.Helper()
	if len(w.members) == 0 {
		w.join()
	}
	for _, m := range w.members {
		m.Drained, m.Leaving = false, false
		w.read(m)
	}
	moves := 0
	for range 60 + 20*len(w.names) {
		changing := w.changing()
		d := w.decide()
		moves += len(d.Moves)
		if len(d.Moves) == 0 && len(d.Waits) == 0 && len(d.Placed) == 0 && !changing {
			w.wantBalance()
			return
		}
	}
	w.t.Fatalf("%d moves of %d pipelines, and no end", moves, len(w.names))
}

// changing reports whether a pipeline drains for a new start, starts, or has an old specification.
func (w *world) changing() bool {
	for _, m := range w.members {
		if slices.ContainsFunc(m.Holds, func(h Hold) bool { return h.Changing || h.Starting || h.Spec != fmt.Sprint(w.files) }) {
			return true
		}
	}
	return false
}

// wantBalance checks the loads: no pipeline would bring two members closer by more than the
// tolerance of a decision.
func (w *world) wantBalance() {
	w.t.Helper()
	load, total := map[string]float64{}, 0.0
	for _, m := range w.members {
		for _, h := range m.Holds {
			load[m.Name] += Weight(w.rates[h.Pipeline])
			total += Weight(w.rates[h.Pipeline])
		}
	}
	mean := total / float64(len(w.members))
	for _, m := range w.members {
		for _, other := range w.members {
			for _, h := range m.Holds {
				if load[m.Name]-load[other.Name]-Weight(w.rates[h.Pipeline]) > (3*tolerance+0.001)*mean {
					w.t.Fatalf("loads %v, and %s with %.0f stays at %s", load, h.Pipeline, w.rates[h.Pipeline], m.Name)
				}
			}
		}
	}
}

// worldsEnv is how many random worlds to live through.
const worldsEnv = "CDC_OUTBOX_TEST_PLACEMENTS"

func TestPlacementsOfRandomFleets(t *testing.T) {
	worlds := 300
	if text := os.Getenv(worldsEnv); text != "" {
		worlds, _ = strconv.Atoi(text)
	}
	for seed := range uint64(worlds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 150 {
				w.happen()
				w.decide()
			}
			w.settle()
		})
	}
}

// A member's arrival moves its share of the pipelines, and its death only its own.
func TestMovesAreFew(t *testing.T) {
	w := newWorld(t, 1)
	w.members, w.names, w.limit = map[string]*Member{}, nil, 1
	for i := range 1000 {
		w.names = append(w.names, fmt.Sprintf("p%03d", i))
	}
	clear(w.rates)
	for i := range 20 {
		m := &Member{Name: fmt.Sprintf("m%02d", i)}
		w.read(m)
		w.members[m.Name] = m
	}
	moves := func() (n int) {
		for range 2000 {
			d := w.decide()
			n += len(d.Moves)
			if len(d.Moves)+len(d.Waits)+len(d.Placed) == 0 {
				return n
			}
		}
		t.Fatal("no end")
		return 0
	}
	if n := moves(); n != 0 {
		t.Errorf("%d moves at the beginning", n)
	}
	delete(w.members, "m07")
	if n := moves(); n != 0 {
		t.Errorf("%d moves after a death", n)
	}
	m := &Member{Name: "m07"}
	w.read(m)
	w.members[m.Name] = m
	if n := moves(); n > 50 {
		t.Errorf("%d moves after an arrival", n)
	}
	if n := len(w.members["m07"].Holds); n < 35 {
		t.Errorf("%d pipelines at the new member", n)
	}
}
