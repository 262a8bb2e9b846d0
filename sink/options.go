package sink

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Options are those of the Kafka sink, as sink.kafka has them.
type Options struct {
	Brokers []string `yaml:"brokers"`
	// Delivery is DeliveryAtLeastOnce; exactly_once is refused until it exists.
	Delivery    string `yaml:"delivery"`
	ClientID    string `yaml:"client_id"`
	Compression string `yaml:"compression"`
	// Linger is how long a record may wait for others to share its batch.
	Linger time.Duration `yaml:"linger"`
	// MaxBufferedBytes bounds the memory of the events between PostgreSQL and
	// the broker's ack: what was made for them, and what they keep of the bytes
	// that were read, which is their rows with all columns at least.
	MaxBufferedBytes int64 `yaml:"max_buffered_bytes" unit:"bytes"`
	// MaxRecordBytes is the largest record that is sent; a larger one is a bad
	// event. Kafka's default limit on the broker (message.max.bytes) is
	// 1048588.
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
	// Token is a fixed OAUTHBEARER token; otherwise TokenURL with ClientID and
	// ClientSecret is asked for one (client credentials grant, RFC 6749 §4.4).
	Token        setting.Secret `yaml:"token"`
	TokenURL     string         `yaml:"token_url"`
	ClientID     string         `yaml:"client_id"`
	ClientSecret setting.Secret `yaml:"client_secret"`
	Scopes       []string       `yaml:"scopes"`
	// AccessKey, SecretKey and SessionToken are for AWS_MSK_IAM; when empty,
	// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN are read.
	AccessKey    string         `yaml:"access_key"`
	SecretKey    setting.Secret `yaml:"secret_key"`
	SessionToken setting.Secret `yaml:"session_token"`
}

// DefaultOptions are what an empty configuration means.
func DefaultOptions() *Options {
	return &Options{
		Brokers:           []string{"localhost:9092"},
		Delivery:          DeliveryAtLeastOnce,
		ClientID:          "cdc-outbox",
		Compression:       "snappy",
		Linger:            5 * time.Millisecond,
		MaxBufferedBytes:  8 << 20,
		MaxRecordBytes:    1 << 20,
		TopicPartitions:   -1,
		ReplicationFactor: -1,
		MissingTopic:      MissingTopicWait,
	}
}
