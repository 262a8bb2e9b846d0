package sink

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// mostNamed bounds the topics an error names.
const mostNamed = 5

// Routes returns why, after another start, events would go nowhere, or to other
// topics than those of ends; nil if they would not. The reasons: brokers refuse a
// new connection. The cluster has none of the topics, and so may be another. A
// topic that matches route.topic may not be written to. Or route.topic matches
// none of the topics, nor any other existing topic, and topics are not to be
// created.
func (p *Probe) Routes(ctx context.Context, route transform.RouteOptions, ends checkpoint.Ends) error {
	ctx, cancel := context.WithTimeout(ctx, p.pace.Timeout)
	defer cancel()
	if err := p.login.refused(ctx); err != nil {
		return err
	}
	written := slices.Sorted(maps.Keys(ends))
	if len(written) == 0 {
		return nil
	}
	known, err := p.describe(ctx, written[:min(len(written), mostWatched)])
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(known, func(t kmsg.MetadataResponseTopic) bool { return same(t, ends) }) {
		return mayPass("correct sink.kafka.brokers; if events are to go to this cluster from now on, stop the other instance first",
			"Kafka has none of the topics that events have gone to: "+few(written))
	}
	like, _, err := route.Topics()
	if err != nil {
		return err
	}
	for _, t := range known {
		if err := p.topics.refused(t); err != nil && like.MatchString(*t.Topic) {
			return err
		}
	}
	if p.topics.cfg.CreateTopics || slices.ContainsFunc(written, like.MatchString) {
		return nil
	}
	all, err := p.describe(ctx, nil)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(t kmsg.MetadataResponseTopic) bool { return t.Topic != nil && like.MatchString(*t.Topic) }) {
		return nil
	}
	return mayPass("correct route.topic; or, if its topics are to be new, create them first",
		fmt.Sprintf("Kafka has no topic that route.topic, %s, leads to; events have gone to %s", route.Topic, few(written)))
}

// describe asks brokers for topics by name; nil: all topics.
func (p *Probe) describe(ctx context.Context, names []string) (topics []kmsg.MetadataResponseTopic, err error) {
	var of *kmsg.MetadataResponse
	if names == nil {
		of, err = broker.AllTopics(ctx, p.client)
	} else {
		of, err = broker.Topics(ctx, p.client, names...)
	}
	if err != nil {
		return nil, mayPass("look at the brokers' logs", fmt.Sprintf("ask brokers for their topics: %v", err))
	}
	return of.Topics, nil
}

// same reports whether earlier events have gone to the very topic, as far as known.
func same(t kmsg.MetadataResponseTopic, ends checkpoint.Ends) bool {
	if t.Topic == nil || t.ErrorCode == kerr.UnknownTopicOrPartition.Code {
		return false
	}
	return !topicID(t.TopicID).other(parseTopicID(ends[*t.Topic].ID))
}

// few names some of the topics.
func few(topics []string) string { return strings.Join(topics[:min(len(topics), mostNamed)], ", ") }
