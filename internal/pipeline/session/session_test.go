package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errLost  = errors.New("connection lost")
	errFinal = errors.New("the role is another's")
)

// sessions end with the given errors in turn.
func sessions(ends ...error) func(context.Context) error {
	return func(context.Context) error {
		err := ends[0]
		ends = ends[1:]
		return err
	}
}

func TestKeepEndsWithWhatANewSessionDoesNotRemove(t *testing.T) {
	config := failure.Configf("", "no such slot")
	for name, ends := range map[string][]error{
		"configuration": {errLost, errLost, config},
		"final":         {errLost, errFinal},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := 0
				err := Keep(t.Context(), sessions(ends...), errFinal, func(err error, wait time.Duration) {
					if told++; err != errLost || wait <= 0 {
						t.Errorf("told of %v and a wait of %v", err, wait)
					}
				})
				if want := ends[len(ends)-1]; err != want || told != len(ends)-1 {
					t.Errorf("Keep = %v after %d sessions were told of, want %v after %d", err, told, want, len(ends)-1)
				}
			})
		})
	}
}

// The waits grow up to their bound; a long session begins them anew.
func TestKeepWaitsLongerUntilASessionLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waited []time.Duration
		one := func(context.Context) error {
			switch len(waited) {
			case 20:
				<-time.After(reset + time.Second)
			case 21:
				return errFinal
			}
			return errLost
		}
		_ = Keep(t.Context(), one, errFinal, func(_ error, wait time.Duration) { waited = append(waited, wait) })
		if before, after := waited[19], waited[20]; before > waits.Longest || after > waits.First || after >= before {
			t.Errorf("the twentieth wait was %v, after a session that lasted %v", before, after)
		}
	})
}

// The end of the context ends a wait, and a session's error then does not count; a loss
// does.
func TestKeepEndsWithItsContext(t *testing.T) {
	loss := failure.Lossf("", "a hole")
	for name, tt := range map[string]struct{ session, want error }{
		"transient": {errLost, nil},
		"loss":      {loss, loss},
	} {
		t.Run("in a session/"+name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			err := Keep(ctx, func(context.Context) error { cancel(); return tt.session }, errFinal, func(error, time.Duration) { t.Error("told of the end") })
			if err != tt.want {
				t.Errorf("Keep = %v, want %v", err, tt.want)
			}
		})
	}
	t.Run("in a wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			if err := Keep(ctx, sessions(errLost), errFinal, func(error, time.Duration) { cancel() }); err != nil || time.Since(began) > 0 {
				t.Errorf("Keep = %v after %v", err, time.Since(began))
			}
		})
	})
}
