package sink

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// An open connection says nothing of a later refusal of the login.
func TestASpareThatBrokersRefuse(t *testing.T) {
	c := startCluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "cdc", "p"))
	cfg := c.config()
	cfg.SASL = SASL{Mechanism: "PLAIN", Username: "cdc", Password: "p"}
	pace := UsualPace
	pace.Login = time.Nanosecond
	p := must.Get(NewProbe(cfg, pace))(t)
	defer p.Close()
	must.OK(t, onlyErr(p.once(t.Context())))
	routes := func() error { return p.Routes(t.Context(), routeTo("outbox.event.${routedByValue}"), nil) }
	must.OK(t, routes())
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
	if err := routes(); failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
		t.Errorf("got %v", err)
	}
	must.OK(t, onlyErr(p.once(t.Context())))
	fault.Remove()
	must.OK(t, routes())
}

// Topics of earlier events may not be written to, or not all of them.
func TestRoutesThatMayNotBeWrittenTo(t *testing.T) {
	allow := func(topic string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	c := startCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "e.order", "e.read", "e.hidden"), kfake.User("PLAIN", "cdc", "p",
		allow("e.order", kmsg.ACLOperationWrite), allow("e.order", kmsg.ACLOperationDescribe), allow("e.read", kmsg.ACLOperationDescribe)))
	cfg := c.config()
	cfg.SASL = SASL{Mechanism: "PLAIN", Username: "cdc", Password: "p"}
	p := must.Get(NewProbe(cfg, UsualPace))(t)
	defer p.Close()
	for name, tt := range map[string]struct {
		template string
		written  []string
		refused  string
	}{
		"all may be":         {"e.$1", []string{"e.order"}, ""},
		"one may be read":    {"e.$1", []string{"e.order", "e.read"}, "e.read"},
		"one is hidden":      {"e.$1", []string{"e.order", "e.hidden"}, "e.hidden"},
		"one is not written": {"e.ord$1", []string{"e.order", "e.read"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ends := checkpoint.Ends{}
			for _, topic := range tt.written {
				ends[topic] = checkpoint.TopicEnds{To: []int64{1}}
			}
			err := p.Routes(t.Context(), routeTo(tt.template), ends)
			if (err != nil) != (tt.refused != "") || err != nil && (!strings.Contains(err.Error(), tt.refused) || !strings.Contains(failure.RemedyOf(err), "kafka-acls")) {
				t.Errorf("got %v, remedy %q", err, failure.RemedyOf(err))
			}
		})
	}
}

// A topic to be created is missing without harm, if brokers would create it. The question
// creates nothing.
func TestTopicsThatWouldNotBeCreated(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg    func(*Options)
		use    Use
		reason string
	}{
		"would be":            {func(*Options) {}, Use{Topic: "new", Optional: true}, ""},
		"too many replicas":   {func(o *Options) { o.ReplicationFactor = 7 }, Use{Topic: "new", Optional: true}, "create topic"},
		"letters would be":    {func(*Options) {}, Use{Topic: "dead", Optional: true, Letters: true}, ""},
		"without the right":   {func(o *Options) { o.SASL.Username = "poor" }, Use{Topic: "new", Optional: true}, "AUTHORIZATION_FAILED"},
		"not to be created":   {func(o *Options) { o.CreateTopics = false }, Use{Topic: "new"}, "does not exist"},
		"one that is created": {func(o *Options) { o.ReplicationFactor = 7 }, Use{Topic: "there", Optional: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "there"), kfake.Superuser("PLAIN", "cdc", "p"),
				kfake.User("PLAIN", "poor", "p", kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "new", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationDescribe, Allow: true}))
			cfg := c.config()
			cfg.SASL = SASL{Mechanism: "PLAIN", Username: "cdc", Password: "p"}
			cfg.CreateTopics = true
			tt.cfg(&cfg)
			p := must.Get(NewProbe(cfg, UsualPace, tt.use))(t)
			defer p.Close()
			troubles := must.Get(p.once(t.Context()))(t)
			switch {
			case tt.reason == "" && len(troubles) > 0, tt.reason != "" && len(troubles) != 1:
				t.Errorf("got %v", troubles)
			case tt.reason != "" && (!strings.Contains(troubles[0].Error(), tt.reason) || failure.RemedyOf(troubles[0]) == ""):
				t.Errorf("got %v, remedy %q", troubles[0], failure.RemedyOf(troubles[0]))
			}
			admin := must.Get(kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.SASL(mechanism(SASL{Mechanism: "PLAIN", Username: "cdc", Password: "p"}))))(t)
			defer admin.Close()
			if topics := must.Get(kadm.NewClient(admin).ListTopics(t.Context()))(t).Names(); !slices.Equal(topics, []string{"there"}) {
				t.Errorf("there are topics %v", topics)
			}
		})
	}
}
