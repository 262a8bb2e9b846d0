package sink

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// impatient makes the client's requests end with their contexts. The client
// itself does not look at them while it connects, and a broker that takes the
// connection and says nothing keeps it at that for ten seconds.
type impatient struct{ client *kgo.Client }

// Request implements kmsg.Requestor. Its goroutine ends with the attempt to
// connect, at the latest when the client is closed.
func (i impatient) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	type answer struct {
		resp kmsg.Response
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		resp, err := i.client.Request(ctx, req)
		answered <- answer{resp, err}
	}()
	select {
	case a := <-answered:
		return a.resp, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
