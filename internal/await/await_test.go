package await_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnswer(t *testing.T) {
	refused := errors.New("refused")
	got, err := await.Answer(t.Context(), func() (int, error) { return 7, refused })
	if got != 7 || !errors.Is(err, refused) {
		t.Errorf("%d, %v, want the answer", got, err)
	}
}

func TestAnswerEndsWithTheContext(t *testing.T) {
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	silence := make(chan struct{})
	defer close(silence)
	_, err := await.Answer(ctx, func() (int, error) {
		cancel(stop)
		<-silence
		return 0, nil
	})
	if !errors.Is(err, stop) {
		t.Errorf("%v, want the cause of the context's end", err)
	}
}

func TestReadyEndsWithTheServer(t *testing.T) {
	exited := make(chan struct{})
	close(exited)
	refused := errors.New("refused")
	for name, tt := range map[string]struct {
		exited <-chan struct{}
		probe  error
	}{
		"by its channel":    {exited, refused},
		"as the probe says": {nil, fmt.Errorf("%w: its last words", await.ErrExited)},
	} {
		t.Run(name, func(t *testing.T) {
			if err := await.Ready(t.Context(), tt.exited, func(context.Context) error { return tt.probe }); !errors.Is(err, await.ErrExited) {
				t.Errorf("%v, want %v", err, await.ErrExited)
			}
		})
	}
}
