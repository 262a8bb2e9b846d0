package pipeline

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// roleFailed is the role of a pipeline in need of an operator.
const roleFailed = "failed"

// restartWaits are the waits between two runs of a pipeline that gave up on a transient
// error, as of a supervisor of processes after exit code 1.
var restartWaits = backoff.Range{First: time.Second, Longest: time.Minute}

// configWait is how long a pipeline with an impossible configuration or missing
// privileges waits before another look: somebody may have fixed the database or the
// broker, and need not disturb the other pipelines by a restart.
const configWait = time.Minute

// restartReset: a run of this length starts the backoff anew.
const restartReset = 5 * time.Minute

// supervise runs the pipeline beside others until ctx ends or events may have
// been lost; run is its method, except in tests. An error while others go
// on is logged, and the result refers to the log; otherwise the error is the result.
func (p *pipeline) supervise(ctx context.Context, run func(context.Context) error) error {
	retry := backoff.Series{Range: restartWaits}
	for {
		started := time.Now()
		err := run(ctx)
		if err == nil {
			return nil
		}
		class := failure.ClassOf(err)
		if ctx.Err() != nil {
			return p.fail(err)
		}
		if class == failure.Loss {
			return p.failAlone(err)
		}
		if class == failure.Config {
			err = p.failAlone(err)
			if backoff.Sleep(ctx, configWait) != nil {
				return err
			}
			continue
		}
		if time.Since(started) > restartReset {
			retry.Reset()
		}
		wait := retry.Next()
		p.health.waitFor(err)
		p.log.Error("pipeline gave up, will start again", zap.Error(err),
			zap.String("remedy", failure.RemedyOf(err)), zap.Duration("wait", wait))
		if backoff.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

const needsOperator = "pipeline failed and needs an operator"

// fail makes the error the pipeline's last state, and adds the pipeline's name.
func (p *pipeline) fail(err error) error {
	p.metrics.Role(roleFailed)
	p.metrics.Disconnected()
	p.health.fail(err)
	return &failure.Error{Class: failure.ClassOf(err), Remedy: p.command.In(failure.RemedyOf(err)),
		Err: fmt.Errorf("pipeline %s: %w", p.name, err)}
}

// failAlone is fail while other pipelines may go on for days: the log has the
// error at once, and the result refers to the log.
func (p *pipeline) failAlone(err error) error {
	p.log.Error(needsOperator, zap.Error(err), zap.String("remedy", failure.RemedyOf(err)),
		zap.Int("exit_code", failure.ClassOf(err).ExitCode()))
	return logged{p.name, p.fail(err)}
}

// logged is a pipeline's error already in the log.
type logged struct {
	pipeline string
	error
}

// Error refers to the log.
func (e logged) Error() string {
	return "pipeline " + e.pipeline + ": failed, for the reason in the log"
}

// Unwrap returns the error itself, with class and remedy.
func (e logged) Unwrap() error { return e.error }
