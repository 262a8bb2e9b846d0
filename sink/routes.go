package sink

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// mostNamed bounds the topics that an error names.
const mostNamed = 5

// Routes returns why events of another start, which go to the topics that route.topic
// makes, would go nowhere, or nil: none of the written topics is like it, and the cluster
// has none that is. It asks brokers for all topics in that case only.
func (p *Probe) Routes(ctx context.Context, template string, written []string) error {
	like := topicsLike(template)
	if len(written) == 0 || slices.ContainsFunc(written, like.MatchString) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.pace.Timeout)
	defer cancel()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, p.client) // of all topics
	if err != nil {
		return mayPass("look at the brokers' logs", fmt.Sprintf("ask brokers for their topics: %v", err))
	}
	for _, t := range resp.Topics {
		if t.Topic != nil && like.MatchString(*t.Topic) {
			return nil
		}
	}
	slices.Sort(written)
	return mayPass("correct route.topic; or, if its topics are to be new, create them first",
		fmt.Sprintf("Kafka has no topic that route.topic, %s, leads to; events have gone to %s", template, strings.Join(written[:min(len(written), mostNamed)], ", ")))
}

var placeholder = regexp.MustCompile(`\$\{[^}]*\}`)

// topicsLike matches the topics that the template may lead to.
func topicsLike(template string) *regexp.Regexp {
	var parts []string
	for _, part := range placeholder.Split(template, -1) {
		parts = append(parts, regexp.QuoteMeta(part))
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".+") + "$")
}
