package sink

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
)

// impatient makes the client's requests end with their contexts, whatever the
// broker does. A request that goes on ends with the attempt to connect, at the
// latest when the client is closed.
type impatient struct{ client *kgo.Client }

// Request implements kmsg.Requestor.
func (i impatient) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return await.Answer(ctx, func() (kmsg.Response, error) { return i.client.Request(ctx, req) })
}
