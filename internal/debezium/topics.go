package debezium

import "strings"

// topics makes create_topics of topic.creation.….
func (t *translation) topics() {
	const prefix = "topic.creation.default."
	config := map[string]string{}
	created := false
	groups, hasGroups := t.options["topic.creation.groups"]
	for name, o := range t.options {
		setting, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		created = true
		switch setting {
		case "partitions":
			t.put("sink.kafka.topic_partitions", o.Value)
			t.say(o, Same, "sink.kafka.topic_partitions")
		case "replication.factor":
			t.put("sink.kafka.replication_factor", o.Value)
			t.say(o, Same, "sink.kafka.replication_factor")
		default:
			config[setting] = o.Value
			t.say(o, Same, "sink.kafka.topic_config")
		}
	}
	if len(config) > 0 {
		t.put("sink.kafka.topic_config", config)
	}
	if created {
		t.put("sink.kafka.create_topics", "true")
	} else if !t.server {
		o := Option{Name: "topic.creation.default.partitions", Written: "topic.creation.default.…"}
		t.say(o, Differs, "sink.kafka.create_topics", "a missing topic is waited for; there brokers may create it (auto.create.topics.enable)")
	}
	if !hasGroups {
		return
	}
	t.say(groups, None, "sink.kafka.topic_config", "all created topics have the same settings: create these topics by hand")
	for _, group := range list(groups.Value) {
		for name, o := range t.options {
			if _, done := t.judged[name]; !done && strings.HasPrefix(name, "topic.creation."+group+".") {
				t.say(o, None, "", "with topic.creation.groups")
			}
		}
	}
}
