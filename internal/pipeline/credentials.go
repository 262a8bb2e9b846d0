package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
)

// credentialsPace is how often files of credentials are looked at, tests more often: a
// fault should show before a connection needs the file.
var credentialsPace = 10 * time.Second

// watchCredentials looks at the files of credentials until the returned function is called
// and joins the goroutine. A fault leaves the pipeline alone.
func (p *pipeline) watchCredentials(ctx context.Context, tell func([]error)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	watching.Go(func() {
		outage := digest.NewOutage(p.log, "all files of credentials can be used again")
		for backoff.Sleep(ctx, credentialsPace) == nil {
			troubles := wiring.Credentials(p.cfg)
			tell(troubles)
			for _, err := range troubles {
				outage.Failed("a file of credentials cannot be used; connections have its former content", err)
			}
			if len(troubles) == 0 {
				outage.Over()
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}
