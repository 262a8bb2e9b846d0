package pgtest

import (
	"context"
	"errors"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
)

func dockerAnswers() bool { return false }

func startContainer(context.Context, pgserver.Options) (server, error) {
	return nil, errors.New("no containers")
}

func containerGoroutines() []goleak.Option { return nil }
