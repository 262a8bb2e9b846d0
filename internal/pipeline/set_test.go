package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/page"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// spec is a pipeline with a slot, and a topic.
func spec(name, slot, topic string) config.Pipeline {
	cfg := config.Default()
	cfg.Source.Slot, cfg.Route.Topic = slot, topic
	cfg.Checkpoint.Store = store.StoreNone
	return config.Pipeline{Name: name, Config: &cfg}
}

func TestStepsFromRunningToWanted(t *testing.T) {
	a, b, a2 := spec("a", "s1", "t"), spec("b", "s2", "t"), spec("a", "s1", "t2")
	renamed := spec("c", "s1", "t")
	neighbour := a
	cfg := *a.Config
	cfg.Source.Slots, cfg.Route.Internal = []string{"s2"}, []string{"x"}
	neighbour.Config = &cfg
	in := func(s config.Pipeline, st state) *member {
		m := &member{pipeline: &pipeline{name: s.Name}, spec: s, state: st}
		if st == stateStopping {
			m.stopped = time.Now()
		}
		return m
	}
	with := func(p config.Pipeline, password string) config.Pipeline {
		cfg := *p.Config
		cfg.Source.URL = setting.Secret("postgres://cdc:" + password + "@db/app")
		return config.Pipeline{Name: p.Name, Config: &cfg}
	}
	flowing := func(p config.Pipeline, st state) *member {
		m := in(with(p, "old"), st)
		m.health = &health{source: well{}}
		return m
	}
	starting := in(with(b, "old"), stateRunning)
	starting.health = &health{}
	renewed := []config.Pipeline{with(a, "new"), with(b, "new")}
	halted := in(a, stateEnded)
	halted.stopped = time.Now()
	for _, tt := range []struct {
		name    string
		members []*member
		wanted  []config.Pipeline
		want    string
	}{
		{"starts all", nil, []config.Pipeline{a, b}, "start a, start b"},
		{"leaves what is the same", []*member{in(a, stateRunning)}, []config.Pipeline{a, b}, "start b"},
		{"leaves a pipeline with other neighbours", []*member{in(a, stateRunning)}, []config.Pipeline{neighbour}, ""},
		{"stops what is not wanted", []*member{in(a, stateRunning), in(b, stateRunning)}, []config.Pipeline{b}, "stop a"},
		{"stops what has changed, first", []*member{in(a, stateRunning)}, []config.Pipeline{a2}, "stop a"},
		{"waits for the end", []*member{in(a, stateStopping)}, []config.Pipeline{a2}, ""},
		{"then starts the change", []*member{halted}, []config.Pipeline{a2}, "drop a, start a"},
		{"then starts the same again", []*member{halted}, []config.Pipeline{a}, "drop a, start a"},
		{"waits to start again what stops", []*member{in(a, stateStopping)}, []config.Pipeline{a}, ""},
		{"leaves what has failed", []*member{in(a, stateEnded)}, []config.Pipeline{a}, ""},
		{"starts a changed one that had failed", []*member{in(a, stateEnded)}, []config.Pipeline{a2}, "drop a, start a"},
		{"waits for a slot", []*member{in(a, stateRunning)}, []config.Pipeline{renamed, b}, "stop a, start b"},
		{"waits for a slot until its pipeline has ended", []*member{in(a, stateStopping)}, []config.Pipeline{renamed}, ""},
		{"then takes the slot", []*member{halted}, []config.Pipeline{renamed}, "drop a, start c"},
		{"stops one for a secret", []*member{flowing(a, stateRunning), flowing(b, stateRunning)}, renewed, "stop a"},
		{"then none until that has ended", []*member{flowing(a, stateStopping), flowing(b, stateRunning)}, renewed, ""},
		{"then the next", []*member{flowing(a, stateEnded), flowing(b, stateRunning)}, renewed, "stop b, drop a, start a"},
		{"stops for a secret at once what does not flow", []*member{flowing(a, stateRunning), starting}, renewed, "stop a, stop b"},
		{"stops all for more than a secret", []*member{flowing(a, stateRunning), flowing(b, stateRunning)}, []config.Pipeline{a, b}, "stop a, stop b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stop, drop, start := steps(tt.members, tt.wanted)
			var got []string
			for _, m := range stop {
				got = append(got, "stop "+m.name)
			}
			for _, m := range drop {
				got = append(got, "drop "+m.name)
			}
			for _, s := range start {
				got = append(got, "start "+s.Name)
			}
			if text := strings.Join(got, ", "); text != tt.want {
				t.Errorf("steps: %s; want %s", text, tt.want)
			}
		})
	}
}

// well is the health of a pipeline that flows.
type well struct{}

func (well) Live() error             { return nil }
func (well) Ready() (bool, []string) { return true, nil }
func (well) Status() any             { return map[string]any{} }
func (well) Remedies() []string      { return nil }

// A pipeline more costs as much beside few others as beside many.
func TestStepsOfManyPipelines(t *testing.T) {
	each := func(n int) float64 {
		var members []*member
		var wanted []config.Pipeline
		for i := range n {
			s := spec(fmt.Sprint("p", i), fmt.Sprint("s", i), "t")
			members, wanted = append(members, &member{pipeline: &pipeline{name: s.Name}, spec: s}), append(wanted, s)
		}
		wanted = append(wanted, spec("new", "new", "t"))
		return testing.AllocsPerRun(2, func() {
			if stop, drop, start := steps(members, wanted); len(stop)+len(drop) > 0 || len(start) != 1 {
				t.Errorf("%d to stop, %d to drop, %d to start", len(stop), len(drop), len(start))
			}
		}) / float64(n)
	}
	few, many := each(20), each(200)
	t.Logf("%.0f allocations each of 20, %.0f each of 200", few, many)
	if many > 1.5*few {
		t.Errorf("%.0f allocations each of 20, and %.0f each of 200", few, many)
	}
}

// fakes run in place of pipelines: until told to stop, and then until let go.
type fakes struct {
	*Set
	began, ended chan string
	letGo        chan error
	stop         func() error
}

func fakeSet(t *testing.T, lasting bool, wanted ...config.Pipeline) fakes {
	t.Helper()
	o := Options{Config: &config.Config{}, Log: zap.NewNop(), Stdout: io.Discard}
	counts := metrics.New("", "")
	f := fakes{Set: newSet(o, counts, nil, page.New(page.DefaultOptions(), "", counts.Pipelines())),
		began: make(chan string, 100), ended: make(chan string, 100), letGo: make(chan error)}
	f.lasting = lasting
	f.run = func(ctx context.Context, p *pipeline) error {
		f.began <- p.name + " " + p.cfg.Route.Topic
		<-ctx.Done()
		err := <-f.letGo
		f.ended <- p.name
		return err
	}
	f.Apply(wanted)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	f.stop = func() error { cancel(); return <-done }
	return f
}

func (f fakes) series(name string) (n int) {
	families, _ := f.counts.Pipelines().Gather()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == metrics.PipelineLabel && l.GetValue() == name {
					n++
				}
			}
		}
	}
	return n
}

func (f fakes) names() string {
	status := f.Status().(map[string]any)["pipelines"].(map[string]any)
	var names []string
	for _, name := range []string{"a", "b", "c"} {
		if _, there := status[name]; there {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// A pipeline is changed, another removed, a third comes with the slot of the removed: each
// start waits for the end of the pipeline before, and nobody touches the others.
func TestSetFollowsTheWantedPipelines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := spec("a", "s1", "t"), spec("b", "s2", "t")
		f := fakeSet(t, true, a, b)
		must.OK(t, f.Settled(t.Context()))
		<-f.began
		<-f.began
		f.Apply([]config.Pipeline{spec("a", "s1", "new"), spec("c", "s2", "t")})
		synctest.Wait()
		if names := f.names(); len(f.began) > 0 || names != "a b c" {
			t.Fatalf("%d have begun beside those that stop; status has %s", len(f.began), names)
		}
		if ok, reasons := f.Ready(); ok || !strings.Contains(strings.Join(reasons, "; "), "pipeline c: role is starting") || strings.Contains(strings.Join(reasons, "; "), "pipeline b") {
			t.Errorf("readiness: %q", reasons)
		}
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.Settled(late); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Settled = %v before anything has ended", err)
		}
		f.letGo <- nil
		f.letGo <- nil
		must.OK(t, f.Settled(t.Context()))
		if first, second := <-f.began, <-f.began; first+", "+second != "a new, c t" && first+", "+second != "c t, a new" {
			t.Errorf("began: %s, %s", first, second)
		}
		if names := f.names(); names != "a c" || f.series("b") != 0 || f.series("c") == 0 {
			t.Errorf("status has %s; %d series of b, %d of c", names, f.series("b"), f.series("c"))
		}
		close(f.letGo)
		must.OK(t, f.stop())
	})
}

// Another secret reaches the pipelines that flow in turn, without another call.
func TestASecretReachesAllInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := func(password string) (specs []config.Pipeline) {
			for _, name := range []string{"a", "b", "c"} {
				p := spec(name, "slot_"+name, "t")
				p.Config.Source.URL = setting.Secret("postgres://cdc:" + password + "@db/app")
				specs = append(specs, p)
			}
			return specs
		}
		f := fakeSet(t, true)
		working, most := 3, 0
		f.run = func(ctx context.Context, p *pipeline) error {
			p.health.set(well{})
			f.began <- p.cfg.Source.URL.Reveal()
			<-ctx.Done()
			return <-f.letGo
		}
		f.Apply(all("old"))
		must.OK(t, f.Settled(t.Context()))
		synctest.Wait()
		for range working {
			<-f.began
		}
		f.Apply(all("new"))
		for range working {
			synctest.Wait()
			stopping := 0
			for _, h := range f.holding() {
				if h.halted {
					stopping++
				}
			}
			most = max(most, stopping)
			f.letGo <- nil
		}
		must.OK(t, f.Settled(t.Context()))
		for range working {
			if url := <-f.began; !strings.Contains(url, "new") {
				t.Errorf("began with %s", url)
			}
		}
		if most != 1 {
			t.Errorf("%d stopped at a time", most)
		}
		close(f.letGo)
		must.OK(t, f.stop())
	})
}

// The error of a pipeline that was removed is not the result of the process; a lasting set
// goes on without any pipeline.
func TestSetForgetsRemovedPipelines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeSet(t, true, spec("a", "s1", "t"))
		<-f.began
		f.Apply(nil)
		f.letGo <- failure.Lossf("look", "gone")
		must.OK(t, f.Settled(t.Context(), "a"))
		synctest.Wait()
		if names := f.names(); names != "" {
			t.Errorf("status has %s", names)
		}
		if ok, reasons := f.Ready(); !ok {
			t.Errorf("not ready: %q", reasons)
		}
		must.OK(t, f.stop())
	})
}

// A set for good ends with its pipelines; both errors are the result.
func TestSetEndsWithItsPipelines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeSet(t, false, spec("a", "s1", "t"), spec("b", "s2", "t"))
		<-f.began
		<-f.began
		go func() {
			f.letGo <- failure.Lossf("", "first")
			f.letGo <- failure.Lossf("", "second")
		}()
		err := f.stop()
		if text := err.Error(); failure.ClassOf(err) != failure.Loss || !strings.Contains(text, "first") || !strings.Contains(text, "second") {
			t.Errorf("Run = %v", err)
		}
	})
}
