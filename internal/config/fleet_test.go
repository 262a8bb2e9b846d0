package config

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// A specification is the same with other secrets and neighbours, and another with anything else.
func TestSpec(t *testing.T) {
	with := func(change func(*Config)) string {
		c := Default()
		c.Source.URL = "postgres://cdc:hunter2@db/app?sslmode=disable"
		change(&c)
		return Pipeline{Name: "orders", Config: &c}.Spec()
	}
	first := with(func(*Config) {})
	for name, change := range map[string]func(*Config){
		"password in the URL": func(c *Config) { c.Source.URL = "postgres://cdc:other@db/app?sslmode=disable" },
		"password":            func(c *Config) { c.Source.URL = "postgres://cdc@db/app?sslmode=disable&password=x" },
		"siblings":            func(c *Config) { c.Source.Slots = []string{"x"} },
		"the process":         func(c *Config) { c.Log.Level, c.Fleet.Member = "debug", "x" },
		"secret of Kafka":     func(c *Config) { c.Sink.Kafka.SASL.Password = "x" },
	} {
		if with(change) != first {
			t.Errorf("%s: another specification", name)
		}
	}
	for name, change := range map[string]func(*Config){
		"host":     func(c *Config) { c.Source.URL = "postgres://cdc:hunter2@other/app?sslmode=disable" },
		"user":     func(c *Config) { c.Source.URL = "postgres://other:hunter2@db/app?sslmode=disable" },
		"slot":     func(c *Config) { c.Source.Slot = "x" },
		"topic":    func(c *Config) { c.Route.Topic = "x" },
		"delivery": func(c *Config) { c.Sink.Kafka.Delivery = sink.DeliveryExactlyOnce },
		"sink":     func(c *Config) { c.Sink.Kafka, c.Sink.Stdout = nil, &Stdout{} },
	} {
		if with(change) == first {
			t.Errorf("%s: the same specification", name)
		}
	}
	for text, want := range map[setting.Secret]string{
		"host=db user=cdc password='a \\' b' dbname=app": "host=db user=cdc dbname=app",
		"password=x host=db":                             " host=db",
	} {
		if got := without(text.Reveal(), "password"); got != want {
			t.Errorf("%q without its password: %q", text.Reveal(), got)
		}
	}
}
