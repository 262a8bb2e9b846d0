package admin

import (
	"slices"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// A replay of the rows that fulfil an operator's condition, in order; its comment ends
// nothing else.
func TestReplayWhere(t *testing.T) {
	for _, mode := range []string{sink.DeliveryAtLeastOnce, sink.DeliveryExactlyOnce} {
		t.Run(mode, func(t *testing.T) {
			p := newPublished(t)
			p.Sink.Kafka.Delivery = mode
			p.write(1, 2, 3, 4, 5, 6)
			p.send("outbox.event.order", 1, 2, 3, 4, 5, 6)
			chosen := AuditOptions{Where: "(payload::jsonb->>'n')::int > 2 -- not the first", Tables: p.Source.Tables, Keys: []string{"k0", "k1"}}
			opts := ReplayOptions{AuditOptions: p.options(chosen), Name: "some", To: "copies"}
			if r := must.Get(Replay(p.ctx(), p.Config, opts))(t); r.Missing != 3 || r.Published != 0 {
				t.Errorf("to publish: %+v", r)
			}
			opts.Publish = true
			must.Get(Replay(p.ctx(), p.Config, opts))(t)
			if r := must.Get(Replay(p.ctx(), p.Config, opts))(t); r.Published != 0 {
				t.Errorf("a repetition under the name: %+v", r)
			}
			var got []string
			for _, rec := range p.broker.Consume(t, []string{"copies"}, kafkatest.Count(3)) {
				got = append(got, string(rec.Key)+" "+string(rec.Value))
			}
			slices.Sort(got) // of two keys
			if want := []string{`k0 {"n": 3}`, `k0 {"n": 6}`, `k1 {"n": 4}`}; !slices.Equal(got, want) {
				t.Errorf("published %q, want %q", got, want)
			}
		})
	}
}

func TestReplayWhereRefusesWhatIsNoCondition(t *testing.T) {
	p := newPublished(t)
	p.exec(`CREATE FUNCTION writes() RETURNS bool LANGUAGE plpgsql AS 'BEGIN DELETE FROM public.outbox; RETURN true; END'`)
	p.write(1, 2)
	for where, want := range map[string]string{
		"agregatetype = 'order'":        "agregatetype",
		"true) ; DELETE FROM outbox --": "--where",
		"aggregateid = $1":              "parameters",
		"1 / (length(type) - 6) > 0":    "SQLSTATE 22012",
		"public.writes()":               "SQLSTATE 25006",
		"type":                          "SQLSTATE 42804",
	} {
		_, err := Replay(p.ctx(), p.Config, ReplayOptions{AuditOptions: p.options(AuditOptions{Where: where, Until: time.Now()}), Name: "n", Publish: true})
		wantClass(t, err, failure.Config, want)
		if failure.RemedyOf(err) == "" {
			t.Errorf("%s: no remedy", where)
		}
	}
	_, err := Replay(p.ctx(), p.Config, ReplayOptions{AuditOptions: p.options(AuditOptions{Where: "true", Tables: []pg.Table{{Schema: "public", Name: "outbx"}}}), Name: "n"})
	wantClass(t, err, failure.Config, "outbx")
	if n := must.Get(p.conn.Exec(t.Context(), `SELECT FROM outbox`))(t).RowsAffected(); n != 2 {
		t.Errorf("%d rows are left, want 2", n)
	}
}
