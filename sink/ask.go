package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

const (
	// patience is the time for a broker's answer until another is asked too.
	patience = 750 * time.Millisecond
	// mostAsked bounds the brokers asked the same question.
	mostAsked = 3
)

// asker asks a cluster for signs of life, and stays with the broker that
// answered last, because there may be hundreds of brokers, and of asking
// processes.
type asker struct {
	cfg    Options
	client *kgo.Client
	broker *kgo.Broker // answered last; nil for none
	// uses are the topics to ask for, and topics the broker's answer.
	uses   map[string]Use
	topics []kmsg.MetadataResponseTopic
	turn   atomic.Uint32 // among the brokers of the cluster
}

func newAsker(cfg Options) (*asker, error) {
	opts, err := ClientOpts(cfg)
	if err != nil {
		return nil, err
	}
	client, err := broker.ConnectOnce(opts...)
	if err != nil {
		return nil, err
	}
	return askWith(client, cfg), nil
}

func askWith(client *kgo.Client, cfg Options) *asker {
	a := &asker{cfg: cfg, client: client}
	a.turn.Store(rand.Uint32())
	return a
}

// Reach returns nil if a broker answers at its advertised address, the
// destination of events. The client must be made with ClientOpts; several brokers
// are tried, until ctx ends.
func Reach(ctx context.Context, client *kgo.Client, cfg Options) (err error) {
	a := askWith(client, cfg)
	for range mostAsked {
		if err = a.ask(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// answer is the answer of a single broker.
type answer struct {
	broker *kgo.Broker
	of     *kmsg.MetadataResponse // nil beside err
	err    error
}

// ask returns nil once a broker has answered at its advertised address, the
// destination of events. If a broker fails or is slow, ask asks another. It is
// for a single goroutine.
func (a *asker) ask(ctx context.Context) error {
	answers := make(chan answer, mostAsked)
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	last := a.broker
	for asked, answered := 0, 0; ; {
		if asked < mostAsked {
			one := last
			last = nil
			asked++
			asking.Go(func() { answers <- a.attempt(ctx, one) })
		}
		select {
		case is := <-answers:
			answered++
			if is.err == nil {
				a.broker, a.topics = is.broker, is.of.Topics
				return nil
			}
			failed = is.err
			if answered == mostAsked {
				return Unreachable(a.cfg, failed)
			}
		case <-time.After(patience):
		case <-ctx.Done():
			asking.Wait()
			for ; answered < asked; answered++ {
				if is := <-answers; failed == nil || errors.As(is.err, new(*unadvertised)) {
					failed = is.err
				}
			}
			return Unreachable(a.cfg, failed)
		}
	}
}

// attempt asks the broker one. If one is nil, attempt first asks the cluster for
// the brokers and takes the next in turn. The turn counts only from then on: a
// broker refusing to name the others takes no turn from them.
func (a *asker) attempt(ctx context.Context, one *kgo.Broker) answer {
	topics := slices.Collect(maps.Keys(a.uses))
	if one != nil {
		of, err := broker.Topics(ctx, one, topics...)
		return answer{one, of, err}
	}
	cluster, err := broker.Topics(ctx, broker.Impatient{Client: a.client})
	if err != nil {
		return answer{err: err}
	}
	next := cluster.Brokers[a.turn.Add(1)%uint32(len(cluster.Brokers))]
	one = a.client.Broker(int(next.NodeID))
	of, err := broker.Topics(ctx, one, topics...)
	if err != nil {
		err = &unadvertised{net.JoinHostPort(next.Host, strconv.Itoa(int(next.Port))), err}
	}
	return answer{one, of, err}
}

// unadvertised is the error of a broker not answering at the advertised
// address, although the cluster answers.
type unadvertised struct {
	address string
	err     error
}

// Error implements error.
func (e *unadvertised) Error() string {
	return fmt.Sprintf("not at %s, where the cluster says that a broker is: %v", e.address, e.err)
}

// Unwrap returns the reason.
func (e *unadvertised) Unwrap() error { return e.err }
