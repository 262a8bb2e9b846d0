package admin

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// repairs tells whether a loss of the slot needs the rights and the room below. To make
// a slot takes the rights of a reader, and the rights on the tables have a separate line.
func (d *doctor) repairs() bool { return d.cfg.Errors.OnLoss == config.LossRepair }

// repairHere checks the needs of a repair on the present machine.
func (d *doctor) repairHere() {
	if !d.repairs() {
		return
	}
	const name = "repair.directory"
	ids, err := audit.New("")
	if err != nil {
		d.fail(name, err)
		return
	}
	ids.Close()
	d.ok(name, "there is a directory for the ids of rows and records")
}

// repairInto checks the needs of a repair in the cluster.
func (d *doctor) repairInto(ctx context.Context, c *cluster) {
	if !d.repairs() {
		return
	}
	for _, topic := range slices.Concat(d.topics, letterTopics(d.cfg)) {
		d.comparable(ctx, c, topic)
	}
	if !wiring.ExactlyOnce(d.cfg) {
		return
	}
	const name = "repair.transactional_id"
	id, err := wiring.TransactionalID(d.cfg)
	if err == nil {
		id += "/" + catalog.RepairVerb
		limited, cancel := context.WithTimeout(ctx, c.patience)
		defer cancel()
		err = sink.Usable(limited, c.client, c.cfg, id)
	}
	if err != nil {
		d.fail(name, err)
		return
	}
	d.ok(name, "transactional id %q may be used", id)
}

// comparable checks that the records of a topic can be read, and its retention.
func (d *doctor) comparable(ctx context.Context, c *cluster, topic string) {
	name := "repair.topic " + topic
	state, err := c.lookup(ctx, topic)
	refused := errors.Is(err, kerr.TopicAuthorizationFailed)
	switch {
	case err != nil && !refused:
		d.skip(name, "see the topic's own line")
	case refused, !state.may(kmsg.ACLOperationRead), !state.may(kmsg.ACLOperationDescribeConfigs):
		d.fail(name, failure.Configf(c.cfg.Tools().Allow("Read --operation DescribeConfigs", topic),
			"errors.on_loss: repair compares the rows with the records of topic %q, and the broker does not allow to read them, or the topic's settings", topic))
	default:
		d.ok(name, "the records and the settings of topic %q may be read", topic)
	}
}
