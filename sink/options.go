package sink

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Options are those of the Kafka sink, as sink.kafka has them.
type Options struct {
	Brokers []string `yaml:"brokers"`
	// Delivery is DeliveryAtLeastOnce or DeliveryExactlyOnce.
	Delivery string `yaml:"delivery"`
	// TransactionBoundaries keeps each transaction of the database in one Kafka
	// transaction, and requires DeliveryExactlyOnce.
	TransactionBoundaries bool `yaml:"transaction_boundaries"`
	// OnOversizedTransaction is OversizedStop or OversizedSplit (publish in parts),
	// for transactions of more than MaxBufferedBytes.
	OnOversizedTransaction string `yaml:"on_oversized_transaction"`

	ClientID    string `yaml:"client_id"`
	Compression string `yaml:"compression"`
	// Linger is the least time between two batches that are not full. The first
	// record after a quiet time goes at once. The pipeline's queue waits, not the
	// client: see queue.await in internal/pipeline/stream.
	Linger time.Duration `yaml:"linger"`
	// MaxBufferedBytes bounds the memory of the events between PostgreSQL and
	// the broker's ack: everything made for them, and the bytes they keep of
	// those read, at least their rows with all columns.
	MaxBufferedBytes int64 `yaml:"max_buffered_bytes" unit:"bytes"`
	// MaxRecordBytes is the largest record sent; a larger record is a bad event.
	// Kafka's default limit on the broker (message.max.bytes) is 1048588.
	MaxRecordBytes int32 `yaml:"max_record_bytes" unit:"bytes"`
	// CreateTopics creates missing topics with the three settings below;
	// otherwise MissingTopic decides.
	CreateTopics      bool              `yaml:"create_topics"`
	TopicPartitions   int32             `yaml:"topic_partitions"`   // -1: the broker's default
	ReplicationFactor int16             `yaml:"replication_factor"` // -1: the broker's default
	TopicConfig       map[string]string `yaml:"topic_config"`
	// MissingTopic is MissingTopicWait (hold the stream until somebody creates
	// the topic) or MissingTopicBadEvent (errors.on_bad_event decides).
	MissingTopic string `yaml:"missing_topic"`
	TLS          TLS    `yaml:"tls"`
	SASL         SASL   `yaml:"sasl"`
}

// Values of the enumerations in Options.
const (
	DeliveryAtLeastOnce = "at_least_once"
	DeliveryExactlyOnce = "exactly_once"

	OversizedStop  = "stop"
	OversizedSplit = "split"

	MissingTopicWait     = "wait"
	MissingTopicBadEvent = "bad_event"
)

// TLS is on when Enabled is true or any other member is set.
type TLS struct {
	Enabled    bool   `yaml:"enabled"`
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
}

// SASL is on when Mechanism is set.
type SASL struct {
	// Mechanism is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or
	// AWS_MSK_IAM.
	Mechanism string         `yaml:"mechanism"`
	Username  string         `yaml:"username"`
	Password  setting.Secret `yaml:"password"`
	// Identity is identityAzure or identityGoogle, for OAUTHBEARER with the workload's
	// identity. Otherwise there is a Token, or TokenURL is asked for a token with ClientID and
	// ClientSecret (client credentials grant, RFC 6749 §4.4).
	Identity     string         `yaml:"identity"`
	Token        setting.Secret `yaml:"token"`
	TokenURL     string         `yaml:"token_url"`
	ClientID     string         `yaml:"client_id"`
	ClientSecret setting.Secret `yaml:"client_secret"`
	Scopes       []string       `yaml:"scopes"`
	// Extensions go with each OAUTHBEARER token (RFC 7628 §3.1).
	Extensions map[string]string `yaml:"extensions"`
	// AccessKey, SecretKey and SessionToken are for AWS_MSK_IAM; when empty, the workload's
	// identity logs in.
	AccessKey    string         `yaml:"access_key"`
	SecretKey    setting.Secret `yaml:"secret_key"`
	SessionToken setting.Secret `yaml:"session_token"`
	// Written are the members written with files, by key. Each login reads them.
	Written setting.Files `yaml:"-" json:"-"`
}

// DefaultOptions are the options of an empty configuration.
func DefaultOptions() *Options {
	return &Options{
		Brokers:  []string{"localhost:9092"},
		Delivery: DeliveryAtLeastOnce,

		OnOversizedTransaction: OversizedStop,

		ClientID:          "cdc-outbox",
		Compression:       "none", // each client can read it as installed, and Debezium's default is the same
		Linger:            4 * time.Millisecond,
		MaxBufferedBytes:  8 << 20,
		MaxRecordBytes:    1 << 20,
		TopicPartitions:   -1,
		ReplicationFactor: -1,
		MissingTopic:      MissingTopicWait,
	}
}

// Validate reports impossible options. Validate reads the files the options name.
func (o *Options) Validate(report setting.Report) {
	o.validateBrokers(report)
	report.OneOf("sink.kafka.delivery", o.Delivery, DeliveryAtLeastOnce, DeliveryExactlyOnce)
	o.validateBoundaries(report)
	report.OneOf("sink.kafka.compression", o.Compression, slices.Sorted(maps.Keys(codecs))...)
	report.Between("sink.kafka.linger", o.Linger, 0, time.Minute)
	report.OneOf("sink.kafka.missing_topic", o.MissingTopic, MissingTopicWait, MissingTopicBadEvent)
	o.validateSizes(report)
	o.TLS.Validate(report, tlsPrefix)
	o.SASL.validate(report)
}

func (o *Options) validateBrokers(report setting.Report) {
	const key = "sink.kafka.brokers"
	if len(o.Brokers) == 0 {
		report.Problem(key, "is empty", "name at least one broker, for example [localhost:9092]")
	}
	for i, broker := range o.Brokers {
		host, text, err := net.SplitHostPort(broker)
		port, portErr := strconv.ParseUint(text, 10, 16)
		if err != nil || portErr != nil || port == 0 || host == "" {
			report(setting.Fault{Key: key, Item: i + 1, Text: "is not host:port", Remedy: "write for example [kafka-1:9092, kafka-2:9092], without kafka://"})
		}
	}
}

func (o *Options) validateBoundaries(report setting.Report) {
	const key, oversized = "sink.kafka.transaction_boundaries", "sink.kafka.on_oversized_transaction"
	report.OneOf(oversized, o.OnOversizedTransaction, OversizedStop, OversizedSplit)
	switch {
	case o.TransactionBoundaries && o.Delivery != DeliveryExactlyOnce:
		report.Problem(key, "needs sink.kafka.delivery: exactly_once: without Kafka transactions consumers see each event as it comes",
			"set sink.kafka.delivery to exactly_once, or remove it")
	case !o.TransactionBoundaries && o.OnOversizedTransaction == OversizedSplit:
		report.Problem(oversized, "has no effect without "+key+": transactions are split wherever a batch ends", "remove it, or set "+key+" to true")
	}
}

func (o *Options) validateSizes(report setting.Report) {
	// Less than a kilobyte cannot hold a record with its headers; more than a
	// gibibyte cannot be a record batch.
	const smallest, largest = 1 << 10, 1 << 30
	if o.MaxRecordBytes < smallest || o.MaxRecordBytes > largest {
		report.Problem("sink.kafka.max_record_bytes", "must be between 1KiB and 1GiB", "set it to the broker's message.max.bytes; 1MiB is the default")
	}
	if o.MaxBufferedBytes < int64(o.MaxRecordBytes) {
		report.Problem("sink.kafka.max_buffered_bytes", "is less than sink.kafka.max_record_bytes, so that the largest record would never fit", "raise it; 8MiB is the default")
	}
	if o.TopicPartitions < 1 && o.TopicPartitions != -1 {
		report.Problem("sink.kafka.topic_partitions", "must be positive, or -1 for the broker's default", "correct the number")
	}
	if o.ReplicationFactor < 1 && o.ReplicationFactor != -1 {
		report.Problem("sink.kafka.replication_factor", "must be positive, or -1 for the broker's default", "correct the number")
	}
}

const tlsPrefix = "sink.kafka.tls."

// Validate reports faults under keys with the prefix.
func (t *TLS) Validate(report setting.Report, prefix string) {
	if t.CertFile != "" && t.KeyFile == "" {
		report.Problem(prefix+"cert_file", "needs "+prefix+"key_file", "set both, or neither")
	}
	if t.KeyFile != "" && t.CertFile == "" {
		report.Problem(prefix+"key_file", "needs "+prefix+"cert_file", "set both, or neither")
	}
	report.File(prefix+"ca_file", t.CAFile)
	report.File(prefix+"cert_file", t.CertFile)
	report.File(prefix+"key_file", t.KeyFile)
}

const saslPrefix = "sink.kafka.sasl."

func (s *SASL) validate(report setting.Report) {
	known := slices.Sorted(maps.Keys(mechanisms))
	if s.Mechanism != "" && mechanisms[s.Mechanism].make == nil {
		report.OneOf(saslPrefix+"mechanism", s.Mechanism, known...)
		return
	}
	members := s.members()
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch {
		case members[name] == "" || slices.Contains(mechanisms[s.Mechanism].members, name):
		case s.Mechanism == "":
			report.Problem(saslPrefix+name, "has no effect without "+saslPrefix+"mechanism", "set the mechanism, for example SCRAM-SHA-512")
		default:
			report.Problem(saslPrefix+name, "does not belong to the mechanism "+s.Mechanism, "remove it, or change "+saslPrefix+"mechanism")
		}
	}
	switch s.Mechanism {
	case "":
	case mechanismOAuth:
		s.validateOAuth(report)
	case mechanismAWS:
		if (s.AccessKey == "") != (s.SecretKey == "") {
			report.Problem(saslPrefix+"access_key", "and "+saslPrefix+"secret_key go together", "set both, or neither for the workload's identity")
		}
		if s.SessionToken != "" && s.AccessKey == "" {
			report.Problem(saslPrefix+"session_token", "has no effect without "+saslPrefix+"access_key", "remove it for the workload's identity, or set access_key and secret_key")
		}
	default:
		s.want(report, "username", "password")
	}
}

func (s *SASL) validateOAuth(report setting.Report) {
	s.validateExtensions(report)
	var sources []string
	for _, name := range []string{"identity", "token", "token_url"} {
		if s.members()[name] != "" {
			sources = append(sources, name)
		}
	}
	switch {
	case len(sources) == 0:
		report.Problem(saslPrefix+"token_url", ", "+saslPrefix+"token or "+saslPrefix+"identity is required by the mechanism OAUTHBEARER", "set token_url, client_id and client_secret")
		return
	case len(sources) > 1:
		report.Problem(saslPrefix+sources[1], "and "+saslPrefix+sources[0]+" exclude each other", "keep one")
		return
	case sources[0] != "token_url":
		s.validateWithoutGrant(report, sources[0])
		return
	}
	if u, err := url.Parse(s.TokenURL); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		report.Problem(saslPrefix+"token_url", "is not an http or https URL", "write for example https://issuer.example/oauth2/token")
	}
	s.want(report, "client_id", "client_secret")
}

// validateWithoutGrant judges the options beside a token, or the workload's identity.
func (s *SASL) validateWithoutGrant(report setting.Report, source string) {
	if source == "identity" {
		report.OneOf(saslPrefix+"identity", s.Identity, identityAzure, identityGoogle)
	}
	for _, name := range []string{"client_id", "client_secret", "scopes"} {
		if s.members()[name] != "" && !(name == "scopes" && s.Identity == identityAzure) {
			report.Problem(saslPrefix+name, "has no effect beside "+saslPrefix+source, "remove it, or set token_url instead")
		}
	}
	if s.Identity == identityAzure && len(s.Scopes) > 1 {
		report.Problem(saslPrefix+"scopes", "is one scope with "+saslPrefix+"identity azure", "keep https://NAMESPACE.servicebus.windows.net/.default")
	}
}

// extensionName and extensionValue are those of RFC 7628 §3.1, as Kafka's own client has them.
var (
	extensionName  = regexp.MustCompile(`^[A-Za-z]+$`)
	extensionValue = regexp.MustCompile(`^[\x21-\x7E \t\r\n]+$`)
)

func (s *SASL) validateExtensions(report setting.Report) {
	for _, name := range slices.Sorted(maps.Keys(s.Extensions)) {
		switch {
		case name == "auth" || !extensionName.MatchString(name):
			report.Problem(saslPrefix+"extensions", fmt.Sprintf("has the name %q", name), "use letters, and not auth, which is the token's own")
		case !extensionValue.MatchString(s.Extensions[name]):
			report.Problem(saslPrefix+"extensions", fmt.Sprintf("has an empty value of %s, or one beyond ASCII", name), "write printable ASCII")
		}
	}
}

// want reports empty members among names.
func (s *SASL) want(report setting.Report, names ...string) {
	for _, name := range names {
		if s.members()[name] == "" {
			report.Problem(saslPrefix+name, "is required by the mechanism "+s.Mechanism, "set it, best as ${file:/path} or ${VARIABLE}")
		}
	}
}

// members are the keys beside mechanism, and their values.
func (s *SASL) members() map[string]string {
	return map[string]string{
		"username": s.Username, "password": s.Password.Reveal(),
		"identity": s.Identity, "extensions": strings.Join(slices.Sorted(maps.Keys(s.Extensions)), " "),
		"token": s.Token.Reveal(), "token_url": s.TokenURL,
		"client_id": s.ClientID, "client_secret": s.ClientSecret.Reveal(), "scopes": strings.Join(s.Scopes, " "),
		"access_key": s.AccessKey, "secret_key": s.SecretKey.Reveal(), "session_token": s.SessionToken.Reveal(),
	}
}
