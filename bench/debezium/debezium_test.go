package main

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRateIsOfWhatArrivedInTheTime(t *testing.T) {
	first := time.UnixMilli(1000)
	for _, c := range []struct {
		a    arrival
		n    int64
		want float64
	}{
		{arrival{first, first.Add(2 * time.Second), 100}, 1100, 500},
		{arrival{first, first, 10}, 10, 0}, // all at once: nobody knows
	} {
		if got := c.a.rate(c.n); got != c.want {
			t.Errorf("%+v of %d: %v, want %v", c.a, c.n, got, c.want)
		}
	}
}

func TestJournal(t *testing.T) {
	j := newJournal(7, 3)
	for range 3 {
		if _, ok := j.take(); !ok {
			t.Fatal("no room")
		}
	}
	if _, ok := j.take(); ok {
		t.Error("room for four events of three")
	}
	for number, at := range []int64{1000, 2000, 3000} {
		j.commits[number].Store(at)
	}
	for number, at := range []int64{1500, 1900} { // the second before the commit's answer
		if err := j.received(j.id(int64(number)), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.received(j.id(0), 9000); err != nil { // once more
		t.Fatal(err)
	}
	if n := j.missing(); n != 1 {
		t.Errorf("%d events are missing, want 1", n)
	}
	if got := j.latencies(1000, 3000); len(got) != 2 || got[0] != 0 || got[1] != 500 {
		t.Errorf("latencies %v, want 0 and 500 ns", got)
	}
	for _, id := range []string{"", newJournal(8, 1).id(0), j.id(3), "00000007-0000-4000-8000-zzzzzzzzzzzz"} {
		if err := j.received(id, 1); err == nil {
			t.Errorf("an event of no commit, %q, was received", id)
		}
	}
}

func TestFingerprint(t *testing.T) {
	record := func(change func(*kgo.Record)) *kgo.Record {
		r := &kgo.Record{Partition: 1, Key: []byte("k"), Value: []byte("\x00\x00\x00\x00\x07{}"), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("1")}}}
		change(r)
		return r
	}
	other := record(func(r *kgo.Record) { r.Value, r.Headers[0].Value = []byte("\x00\x00\x00\x00\x07[]"), []byte("2") })
	of := func(skip int, records ...*kgo.Record) fingerprint {
		t.Helper()
		var f fingerprint
		for _, r := range records {
			if err := f.add(r, skip); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	same := func(*kgo.Record) {}
	want := of(0, record(same), other)
	if got := of(0, other, record(same)); got != want {
		t.Errorf("in another order %+v, want %+v", got, want)
	}
	number := func(r *kgo.Record) { r.Value[4] = 8 }
	if got := of(numberSize, record(number), other); got != of(numberSize, record(same), other) {
		t.Errorf("the number of a schema counts where it is left out: %+v", got)
	}
	for name, change := range map[string]func(*kgo.Record){
		"partition": func(r *kgo.Record) { r.Partition = 2 },
		"key":       func(r *kgo.Record) { r.Key = []byte("l") },
		"number":    number,
		"value":     func(r *kgo.Record) { r.Value[5] = '[' },
		"header":    func(r *kgo.Record) { r.Headers = append(r.Headers, kgo.RecordHeader{Key: "more"}) },
	} {
		if of(0, record(change), other) == want {
			t.Errorf("another %s is not seen", name)
		}
	}
	if (&fingerprint{}).add(&kgo.Record{Value: []byte("x"), Headers: other.Headers}, numberSize) == nil {
		t.Error("a value shorter than the number is taken")
	}
}

func TestFormatsHaveModes(t *testing.T) {
	o := options{rounds: 1, rows: 10, perTx: 10, trafficPerTx: 1}
	for mode := range formatsOf {
		o.modes = append(o.modes, mode)
	}
	if err := o.check(); err != nil {
		t.Error(err)
	}
}

func TestPropertiesAreWrittenAsJavaReadsThem(t *testing.T) {
	p := properties{"b": `back\slash`, "a": "1"}
	if got, want := p.with(properties{"a": "2"}).String(), "a=2\nb=back\\\\slash\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if p["a"] != "1" {
		t.Error("with changes what it copies")
	}
}

func TestConnectorsReadTheirOwnDatabases(t *testing.T) {
	one := connection(road{url: "postgres://me:secret@127.0.0.1:5432/bench_1?sslmode=disable"}, task{"bench_1", "bench-1"})
	for name, want := range map[string]string{
		"database.dbname": "bench_1", "database.port": "5432", "database.password": "secret", "database.sslmode": "disable",
		"slot.name": "bench_1", "name": "bench-1", "topic.prefix": "bench-1", "transforms.outbox.route.topic.replacement": "bench-1",
	} {
		if one[name] != want {
			t.Errorf("%s is %q, want %q", name, one[name], want)
		}
	}
}

func TestWritersAreAsManyForEachDatabase(t *testing.T) {
	for _, c := range []struct{ rate, perTx, databases, want int }{
		{10, 1, 1, 2},
		{1000, 1, 1, 16},
		{1000, 10, 1, 2},
		{100_000, 1, 1, 64},
		{200, 1, 20, 20},
		{2000, 1, 20, 40},
		{1000, 1, 100, 100},
	} {
		if got := writersFor(c.rate, c.perTx, c.databases); got != c.want {
			t.Errorf("%+v: %d writers", c, got)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := options{modes: rig.List{modeDrain}, rates: rig.List{"10", "1000"}, rounds: 1, rows: 10, perTx: 10, trafficPerTx: 1}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*options){
		"an unknown mode":     func(o *options) { o.modes = rig.List{"drains"} },
		"a rate of nothing":   func(o *options) { o.rates = rig.List{"0"} },
		"no rows of a commit": func(o *options) { o.trafficPerTx = 0 },
		"less than a commit":  func(o *options) { o.trafficPerTx = 11 },
		"no rate":             func(o *options) { o.rates = rig.List{""} },
		"no round":            func(o *options) { o.rounds = 0 },
		"part of transaction": func(o *options) { o.rows = 9 },
		"many of none":        func(o *options) { o.modes, o.rate = rig.List{modeMany}, 10 },
		"many without a row":  func(o *options) { o.modes, o.pipelines = rig.List{modeMany}, 20 },
	} {
		bad := good
		change(&bad)
		if bad.check() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
