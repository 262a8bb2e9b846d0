package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// checkOutput refuses to confirm events into nothing. If standard output was
// closed before the start, Go's runtime has opened the null device in its
// place, so no other file gets its number. So a closed output and the null
// device look the same.
func (p *program) checkOutput(cfg *config.Config) error {
	out, ok := p.stdout.(*os.File)
	if !ok {
		return nil
	}
	written := false
	for _, each := range cfg.Each() {
		written = written || each.Config.Sink.Stdout != nil
	}
	if !written {
		return nil
	}
	is, err := out.Stat()
	if err == nil {
		var null os.FileInfo
		if null, err = os.Stat(os.DevNull); err != nil || !os.SameFile(is, null) {
			return nil
		}
	}
	return failure.Configf("give it a file or a pipe; to drop the events on purpose: cdc-outbox run | cat > "+os.DevNull,
		"sink.stdout: standard output is closed, or %s: events would be confirmed and be nowhere", os.DevNull)
}

// surviveBrokenPipes makes it an error of the write if nobody reads standard
// output or standard error any more. By default SIGPIPE would end the process
// without a drain, even for a lost log line.
func surviveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
