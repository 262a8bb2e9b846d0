package consumer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

const forgotten = "has forgotten a key"

// watchOf returns a new process's watch, and the log.
func watchOf(t *testing.T, o idempotency.Options) (*scopeWatch, *strings.Builder) {
	t.Helper()
	o.MaxAttempts = -1
	p, err := idempotency.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	log := &strings.Builder{}
	return &scopeWatch{session: &session{cfg: &Config{
		Group: "g", Once: Once{Scope: "s", Runner: p}, retention: p.Retention(), Logger: slog.New(slog.NewTextHandler(log, nil)),
	}}}, log
}

func newTable() *table { return &table{records: map[storage.Key]storage.Record{}} }

// looks looks once a minute.
func looks(t *testing.T, w *scopeWatch, times int) (answers int) {
	t.Helper()
	for range times {
		answered, err := w.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if answered {
			answers++
		}
		<-time.After(scopeInterval)
	}
	return answers
}

func TestAScopeThatExpiresIsNotForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := idempotency.Options{Store: newTable(), Retention: time.Hour}
		first, _ := watchOf(t, o)
		looks(t, first, 50)
		restarted, log := watchOf(t, o)
		if n := looks(t, restarted, 100); n != 100 || log.Len() > 0 {
			t.Errorf("%d answers, logged %s", n, log)
		}
	})
}

func TestAScopeThatIsForgottenAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newTable()
		o := idempotency.Options{Store: store, Retention: time.Hour}
		first, _ := watchOf(t, o)
		looks(t, first, 10)
		restarted, log := watchOf(t, o)
		looks(t, restarted, 1)
		clear(store.records)
		looks(t, restarted, 10)
		if n := strings.Count(log.String(), forgotten); n != 1 {
			t.Errorf("said %d times: %s", n, log)
		}
	})
}

// A value without a time, as of another version, tells the group all the same.
func TestAScopeWithoutATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := idempotency.Options{Store: newTable(), Retention: time.Hour}
		w, log := watchOf(t, o)
		_, err := w.cfg.Once.Runner.Run(t.Context(), idempotency.Message{Key: storage.Key{Scope: "s", ID: scopeID}},
			func(context.Context) ([]byte, error) { return []byte("g"), nil })
		if err != nil {
			t.Fatal(err)
		}
		if n := looks(t, w, 100); n != 100 || log.Len() > 0 {
			t.Errorf("%d answers, logged %s", n, log)
		}
		w.cfg.Group = "another"
		if _, err := w.look(t.Context()); !errors.Is(err, errScopeTaken) || !strings.Contains(err.Error(), `"g"`) {
			t.Error(err)
		}
	})
}

// deaf does not answer claims, or not settlements.
type deaf struct {
	storage.Store
	claims, settlements bool
}

var errDeaf = errors.New("no answer")

func (d *deaf) Claim(ctx context.Context, key storage.Key, req storage.ClaimRequest) (storage.Claim, error) {
	if d.claims {
		return storage.Claim{}, errDeaf
	}
	return d.Store.Claim(ctx, key, req)
}

func (d *deaf) Complete(ctx context.Context, l storage.Lease, result []byte, retention time.Duration) error {
	if d.settlements {
		return errDeaf
	}
	return d.Store.Complete(ctx, l, result, retention)
}

// Without a claim nothing is known of the store, though the handler runs.
func TestAnOutageUnderFailOpenIsNoForgetting(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]deaf{"claims": {claims: true}, "settlements": {settlements: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &deaf{Store: newTable()}
				w, log := watchOf(t, idempotency.Options{Store: store, Retention: time.Hour, FailOpen: true})
				store.claims, store.settlements = down.claims, down.settlements
				if n := looks(t, w, 10); down.claims && n > 0 || log.Len() > 0 {
					t.Errorf("at the beginning: %d answers, logged %s", n, log)
				}
				store.claims, store.settlements = false, false
				looks(t, w, 10) // the store has been found again after some
				store.claims, store.settlements = down.claims, down.settlements
				if n := looks(t, w, 10); down.claims && n > 0 || log.Len() > 0 {
					t.Errorf("later: %d answers, logged %s", n, log)
				}
			})
		})
	}
}
