package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Settings are a topic's or a broker's settings, by name.
type Settings map[string]string

// Number returns a setting that is a number.
func (s Settings) Number(key string) (int, error) {
	value, ok := s[key]
	if !ok {
		return 0, fmt.Errorf("the broker does not tell %s", key)
	}
	return strconv.Atoi(value)
}

// String lists the settings, for people.
func (s Settings) String() string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, key+"="+s[key])
	}
	return strings.Join(parts, ", ")
}

// TopicSettings asks for settings of a topic, without keys for all. The right to
// DescribeConfigs of the topic is required.
func TopicSettings(ctx context.Context, of kmsg.Requestor, topic string, keys ...string) (Settings, error) {
	return settings(ctx, of, kmsg.ConfigResourceTypeTopic, topic, keys)
}

// BrokerSettings is TopicSettings for a broker; the right is the cluster's.
func BrokerSettings(ctx context.Context, of kmsg.Requestor, node int32, keys ...string) (Settings, error) {
	return settings(ctx, of, kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(node)), keys)
}

func settings(ctx context.Context, of kmsg.Requestor, kind kmsg.ConfigResourceType, name string, keys []string) (Settings, error) {
	all, err := describe(ctx, of, kind, []string{name}, keys)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("settings of %d resources in the answer about one", len(all))
	}
	return read(all[0].Configs), kerr.ErrorForCode(all[0].ErrorCode)
}

// EachTopic is TopicSettings for several topics, by topic, without those of which
// brokers do not tell.
func EachTopic(ctx context.Context, of kmsg.Requestor, topics []string, keys ...string) (map[string]Settings, error) {
	all, err := describe(ctx, of, kmsg.ConfigResourceTypeTopic, topics, keys)
	found := make(map[string]Settings, len(all))
	for _, r := range all {
		if r.ErrorCode == 0 {
			found[r.ResourceName] = read(r.Configs)
		}
	}
	return found, err
}

func describe(ctx context.Context, of kmsg.Requestor, kind kmsg.ConfigResourceType, names, keys []string) ([]kmsg.DescribeConfigsResponseResource, error) {
	if len(names) == 0 {
		return nil, errors.New("settings of nothing") // brokers take no name for all
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range names {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, keys
		req.Resources = append(req.Resources, r)
	}
	resp, err := req.RequestWith(ctx, of)
	if err != nil {
		return nil, err
	}
	return resp.Resources, nil
}

func read(configs []kmsg.DescribeConfigsResponseResourceConfig) Settings {
	values := make(Settings, len(configs))
	for _, c := range configs {
		if c.Value != nil {
			values[c.Name] = *c.Value
		}
	}
	return values
}
