package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// Usable returns why the transactional id could not be claimed, or nil, as far
// as brokers tell without a claim. Usable changes nothing, whoever has the id.
// Brokers make their topic when they are asked for the first time, so Usable
// asks until ctx ends.
func Usable(ctx context.Context, client kmsg.Requestor, cfg Options, id string) error {
	retry := backoff.Series{Range: backoff.Range{First: 100 * time.Millisecond, Longest: time.Second}}
	for {
		err := broker.Coordinated(ctx, client, id)
		if err != nil {
			err = fmt.Errorf("find the coordinator of transactional id %q: %w", id, err)
		} else if err = broker.Claimable(ctx, client, id); err != nil {
			err = fmt.Errorf("write in transactions of transactional id %q: %w", id, err)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
			return failure.Configf(cfg.Tools().AllowTransactions(id), "%w", err)
		case kerr.IsRetriable(err) && retry.Pause(ctx) == nil:
			continue
		}
		return &failure.Error{
			Class:  failure.Transient,
			Remedy: "start as many brokers as transaction.state.log.replication.factor says, or lower it",
			Err:    err,
		}
	}
}

// usablePatience bounds the questions of Transactions.Usable.
const usablePatience = 5 * time.Second

// Usable is the function Usable for the sink's id, and also compares the timeout with the
// brokers' limit. It may be called again and again before Claim, and changes nothing.
func (x *Transactions) Usable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, usablePatience)
	defer cancel()
	client := broker.Impatient{Client: x.k.client}
	if err := Usable(ctx, client, x.k.cfg, x.id); err != nil {
		return err
	}
	if longest := longestTransaction(ctx, client); longest > 0 && x.timeout > longest {
		return fmt.Errorf("claim transactional id %q: %w", x.id, x.timeoutRefused(kerr.InvalidTransactionTimeout))
	}
	return nil
}

// timeoutRefused is the error of brokers with a lower limit of transaction timeouts.
func (x *Transactions) timeoutRefused(err error) error {
	return failure.Configf(fmt.Sprintf("raise %s of the brokers to %d", maxTimeout, x.timeout.Milliseconds()), "%w", err)
}

const maxTimeout = "transaction.max.timeout.ms"

// longestTransaction is a broker's limit of transaction timeouts; 0: unknown. The
// right to DescribeConfigs of the cluster is required.
func longestTransaction(ctx context.Context, client kmsg.Requestor) time.Duration {
	cluster, err := broker.Topics(ctx, client)
	if err != nil {
		return 0
	}
	settings, err := broker.BrokerSettings(ctx, client, cluster.Brokers[0].NodeID, maxTimeout)
	if err != nil {
		return 0
	}
	ms, _ := settings.Number(maxTimeout)
	return time.Duration(ms) * time.Millisecond
}
