package debezium

import (
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Option is a setting of a connector or of a worker.
type Option struct {
	Name    string // as Kafka Connect names the option: slot.name
	Written string // as the input does: debezium.source.slot.name
	Value   string
}

// Connector is a connector's configuration as read, before any judgement.
type Connector struct {
	Form string // of the input, for people: "connector JSON"
	Name string // the connector's; may be empty
	// Options are in the order of the input.
	Options []Option
	// Worker are the options of the Connect worker, or of a KafkaConnect resource.
	Worker []Option
	// Server: the program is Debezium Server, without a worker and Connect's references.
	Server bool
	// Version is the connector's, if a worker has told; otherwise empty.
	Version string
}

// largest bounds an input in bytes: no configuration is as large.
const largest = 1 << 20

// Read reads a configuration in any form: connector JSON, Java properties,
// Strimzi's YAML, Debezium Server's properties. name is for errors.
func Read(name string, text []byte) (*Connector, error) {
	if len(text) > largest {
		return nil, failure.Configf("name the file with the connector's configuration", "%s has more than %d bytes", name, largest)
	}
	trimmed := strings.TrimSpace(string(text))
	switch {
	case trimmed == "":
		return nil, failure.Configf("name the file with the connector's configuration", "%s is empty", name)
	case kubernetes(trimmed):
		return readStrimzi(name, trimmed)
	case strings.HasPrefix(trimmed, "{"):
		return readJSON(name, trimmed)
	}
	return readProperties(name, trimmed)
}

// ReadWorker reads the properties of a Connect worker, or the environment of the
// container (CONNECT_KEY_CONVERTER, …), as the command env prints it.
func ReadWorker(name string, text []byte) ([]Option, error) {
	if len(text) > largest {
		return nil, failure.Configf("name the worker's properties", "%s has more than %d bytes", name, largest)
	}
	trimmed := strings.TrimSpace(string(text))
	if kubernetes(trimmed) {
		c, err := readResources(name, trimmed)
		return c.Worker, err
	}
	options, err := properties(name, trimmed)
	for i, o := range options {
		options[i].Name = workerName(o.Written)
	}
	return options, err
}

// workerVariables are variables of Debezium's Connect image without the prefix of the
// others.
var workerVariables = []string{"BOOTSTRAP_SERVERS", "KEY_CONVERTER", "VALUE_CONVERTER", "HEADER_CONVERTER"}

// workerName is the worker's name for a variable of a container.
func workerName(written string) string {
	name, prefixed := strings.CutPrefix(written, "CONNECT_")
	if prefixed || slices.Contains(workerVariables, written) {
		return strings.ToLower(strings.ReplaceAll(name, "_", "."))
	}
	return written
}
