package debezium

import (
	"errors"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

var resource = regexp.MustCompile(`(?m)^\s*["']?kind["']?\s*:\s*["']?Kafka(Connector|Connect)\b`)

// kubernetes tells whether the text has resources of Strimzi.
func kubernetes(text string) bool { return resource.MatchString(text) }

// readStrimzi reads a KafkaConnector and, if present, a KafkaConnect.
func readStrimzi(name, text string) (*Connector, error) {
	c, err := readResources(name, text)
	if err == nil && c.Options == nil {
		err = failure.Configf("name the file of the KafkaConnector; a KafkaConnect goes into --worker", "%s has no KafkaConnector", name)
	}
	return c, err
}

func readResources(name, text string) (*Connector, error) {
	c := &Connector{Form: "KafkaConnector of Strimzi"}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return c, failure.Configf("correct the syntax; quote values with special characters", "%s is not YAML", name)
		}
		root := child(&document)
		switch text := at(root, "kind"); {
		case text == "KafkaConnect":
			c.Worker = append(c.Worker, worker(find(root, "spec"))...)
		case text != "KafkaConnector":
		case c.Options != nil:
			return c, failure.Configf("keep one KafkaConnector; import each by itself", "%s has more than one KafkaConnector", name)
		default:
			c.Name = at(find(root, "metadata"), "name")
			if c.Options, err = kafkaConnector(name, find(root, "spec")); err != nil {
				return c, err
			}
		}
	}
}

// kafkaConnector are the options of a KafkaConnector's spec.
func kafkaConnector(name string, spec *yaml.Node) ([]Option, error) {
	options := []Option{}
	for _, o := range []struct{ field, option string }{{"class", "connector.class"}, {"tasksMax", "tasks.max"}} {
		if value := at(spec, o.field); value != "" {
			options = append(options, Option{Name: o.option, Written: "spec." + o.field, Value: value})
		}
	}
	config := find(spec, "config")
	for i := 0; config != nil && i+1 < len(config.Content); i += 2 {
		key, value := config.Content[i], config.Content[i+1]
		if value.Kind != yaml.ScalarNode {
			return options, failure.Configf("write each option as text", "%s: option %s is not a single value", name, printable(key.Value))
		}
		if value.Tag != "!!null" {
			options = set(options, key.Value, value.Value)
		}
	}
	return options, nil
}

// worker returns the worker's options by a KafkaConnect's spec, producers included.
func worker(spec *yaml.Node) []Option {
	var options []Option
	add := func(field, name, value string) {
		if value != "" {
			options = append(options, Option{Name: name, Written: "KafkaConnect spec." + field, Value: value})
		}
	}
	add("bootstrapServers", "bootstrap.servers", at(spec, "bootstrapServers"))
	tls := find(spec, "tls")
	login := authentication(find(spec, "authentication"), tls != nil)
	if tls != nil {
		if len(login) == 0 {
			add("tls", "producer.security.protocol", "SSL")
		}
		certificates := find(tls, "trustedCertificates")
		if certificates != nil && len(certificates.Content) > 0 {
			first := certificates.Content[0]
			add("tls.trustedCertificates", "producer.ssl.truststore.type", "PEM")
			add("tls.trustedCertificates", "producer.ssl.truststore.location", "${secrets:"+at(first, "secretName")+":"+at(first, "certificate")+at(first, "pattern")+"}")
		}
	}
	for _, o := range login {
		add("authentication", o.Name, o.Value)
	}
	config := find(spec, "config")
	for i := 0; config != nil && i+1 < len(config.Content); i += 2 {
		if value := config.Content[i+1]; value.Kind == yaml.ScalarNode {
			add("config."+config.Content[i].Value, config.Content[i].Value, value.Value)
		}
	}
	return options
}

// authentication returns the options made by Strimzi of a section authentication.
func authentication(node *yaml.Node, encrypted bool) []Option {
	protocol := "SASL_PLAINTEXT"
	if encrypted {
		protocol = "SASL_SSL"
	}
	kind := at(node, "type")
	var module, mechanism string
	switch kind {
	case "scram-sha-512", "scram-sha-256":
		module, mechanism = scramModule, strings.ToUpper(kind)
	case "plain":
		module, mechanism = plainModule, "PLAIN"
	case "tls":
		pair := find(node, "certificateAndKey")
		secret := "${secrets:" + at(pair, "secretName") + ":"
		return []Option{
			{Name: "producer.security.protocol", Value: "SSL"},
			{Name: "producer.ssl.keystore.type", Value: "PEM"},
			{Name: "producer.ssl.keystore.certificate.chain", Value: secret + at(pair, "certificate") + "}"},
			{Name: "producer.ssl.keystore.key", Value: secret + at(pair, "key") + "}"},
		}
	case "":
		return nil
	default:
		return []Option{{Name: "producer.security.protocol", Value: protocol}, {Name: "producer.sasl.mechanism", Value: strings.ToUpper(kind)}}
	}
	secret := find(node, "passwordSecret")
	return []Option{
		{Name: "producer.security.protocol", Value: protocol},
		{Name: "producer.sasl.mechanism", Value: mechanism},
		{Name: "producer.sasl.jaas.config", Value: module + ` required username="` + at(node, "username") +
			`" password="${secrets:` + at(secret, "secretName") + ":" + at(secret, "password") + `}";`},
	}
}

// child is the content of a document; nil for none.
func child(document *yaml.Node) *yaml.Node {
	if len(document.Content) == 0 {
		return nil
	}
	return document.Content[0]
}

// find returns the value of a key in a mapping; nil for none.
func find(node *yaml.Node, key string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// at returns the text of a key in a mapping; "" for none.
func at(node *yaml.Node, key string) string {
	value := find(node, key)
	if value == nil || value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
		return ""
	}
	return value.Value
}
