package sink

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
)

// impatient makes the client's requests return when their contexts end,
// whatever the broker does. The request itself may go on in the background
// until the attempt to connect ends, at the latest until the client is closed.
type impatient struct{ client *kgo.Client }

// Request implements kmsg.Requestor.
func (i impatient) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return await.Answer(ctx, func() (kmsg.Response, error) { return i.client.Request(ctx, req) })
}
