package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

func (l *loader) validateSink() {
	k := l.cfg.Sink.Kafka
	if k == nil {
		if l.cfg.Sink.Stdout == nil {
			l.report("sink", "names no sink", "set sink.kafka or sink.stdout")
		}
		return
	}
	l.validateBrokers(k.Brokers)
	if k.Delivery == DeliveryExactlyOnce {
		l.report("sink.kafka.delivery", "exists in a later version only", "set it to at_least_once; consumers recognise a repeated event by its header id")
	} else {
		l.wantOneOf("sink.kafka.delivery", k.Delivery, DeliveryAtLeastOnce)
	}
	l.wantOneOf("sink.kafka.compression", k.Compression, "none", "gzip", "snappy", "lz4", "zstd")
	l.wantBetween("sink.kafka.linger", k.Linger, 0, time.Minute)
	l.wantOneOf("sink.kafka.missing_topic", k.MissingTopic, MissingTopicWait, MissingTopicBadEvent)
	l.validateSizes(k)
	l.validateTLS(&k.TLS)
	l.validateSASL(&k.SASL)
}

func (l *loader) validateBrokers(brokers []string) {
	if len(brokers) == 0 {
		l.report("sink.kafka.brokers", "is empty", "name at least one broker, for example [localhost:9092]")
	}
	written := l.given["sink.kafka.brokers"].items
	for i, broker := range brokers {
		if port, err := splitHostPort(broker); err != nil || port == 0 || broker[0] == ':' {
			item := fmt.Sprintf("item %d", i+1)
			if i < len(written) {
				item += " " + display(written[i])
			}
			l.report("sink.kafka.brokers", strings.TrimSpace(item)+" is not host:port", "write for example [kafka-1:9092, kafka-2:9092], without kafka://")
		}
	}
}

func (l *loader) validateSizes(k *Kafka) {
	// Less than a kilobyte cannot hold a record with its headers; more than a
	// gibibyte cannot be a record batch.
	const smallest, largest = 1 << 10, 1 << 30
	if k.MaxRecordBytes < smallest || k.MaxRecordBytes > largest {
		l.report("sink.kafka.max_record_bytes", "must be between 1KiB and 1GiB", "set it to the broker's message.max.bytes; 1MiB is the default")
	}
	if k.MaxBufferedBytes < int64(k.MaxRecordBytes) {
		l.report("sink.kafka.max_buffered_bytes", "is less than sink.kafka.max_record_bytes, so that the largest record would never fit", "raise it; 8MiB is the default")
	}
	if k.TopicPartitions < 1 && k.TopicPartitions != -1 {
		l.report("sink.kafka.topic_partitions", "must be positive, or -1 for the broker's default", "mend the number")
	}
	if k.ReplicationFactor < 1 && k.ReplicationFactor != -1 {
		l.report("sink.kafka.replication_factor", "must be positive, or -1 for the broker's default", "mend the number")
	}
}

func (l *loader) validateTLS(t *TLS) {
	const prefix = "sink.kafka.tls."
	if t.CertFile != "" && t.KeyFile == "" {
		l.report(prefix+"cert_file", "needs "+prefix+"key_file", "set both, or neither")
	}
	if t.KeyFile != "" && t.CertFile == "" {
		l.report(prefix+"key_file", "needs "+prefix+"cert_file", "set both, or neither")
	}
	l.wantFile(prefix+"ca_file", t.CAFile)
	l.wantFile(prefix+"cert_file", t.CertFile)
	l.wantFile(prefix+"key_file", t.KeyFile)
}

const (
	mechanismPlain  = "PLAIN"
	mechanismScram1 = "SCRAM-SHA-256"
	mechanismScram2 = "SCRAM-SHA-512"
	mechanismOAuth  = "OAUTHBEARER"
	mechanismAWS    = "AWS_MSK_IAM"
)

// saslMember is one key of sink.kafka.sasl and the mechanisms that it is for.
type saslMember struct {
	key        string
	set        bool
	mechanisms []string
}

func saslMembers(s *SASL) []saslMember {
	password := []string{mechanismPlain, mechanismScram1, mechanismScram2}
	oauth, aws := []string{mechanismOAuth}, []string{mechanismAWS}
	return []saslMember{
		{"username", s.Username != "", password},
		{"password", s.Password != "", password},
		{"token", s.Token != "", oauth},
		{"token_url", s.TokenURL != "", oauth},
		{"client_id", s.ClientID != "", oauth},
		{"client_secret", s.ClientSecret != "", oauth},
		{"scopes", len(s.Scopes) > 0, oauth},
		{"access_key", s.AccessKey != "", aws},
		{"secret_key", s.SecretKey != "", aws},
		{"session_token", s.SessionToken != "", aws},
	}
}

func (l *loader) validateSASL(s *SASL) {
	const prefix = "sink.kafka.sasl."
	mechanisms := []string{mechanismPlain, mechanismScram1, mechanismScram2, mechanismOAuth, mechanismAWS}
	if s.Mechanism != "" && !oneOf(s.Mechanism, mechanisms...) {
		l.wantOneOf(prefix+"mechanism", s.Mechanism, mechanisms...)
		return
	}
	for _, member := range saslMembers(s) {
		switch {
		case member.set && s.Mechanism == "":
			l.report(prefix+member.key, "has no effect without "+prefix+"mechanism", "set the mechanism, for example SCRAM-SHA-512")
		case member.set && !oneOf(s.Mechanism, member.mechanisms...):
			l.report(prefix+member.key, "does not belong to the mechanism "+s.Mechanism, "remove it, or change "+prefix+"mechanism")
		}
	}
	switch s.Mechanism {
	case mechanismPlain, mechanismScram1, mechanismScram2:
		l.wantSASL("username", s.Username)
		l.wantSASL("password", s.Password.Reveal())
	case mechanismOAuth:
		l.validateOAuth(s)
	case mechanismAWS:
		if (s.AccessKey == "") != (s.SecretKey == "") {
			l.report(prefix+"access_key", "and "+prefix+"secret_key go together", "set both, or neither for AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
		}
	}
}

func (l *loader) validateOAuth(s *SASL) {
	const prefix = "sink.kafka.sasl."
	if s.Token != "" {
		if s.TokenURL != "" {
			l.report(prefix+"token_url", "and "+prefix+"token exclude each other", "keep one")
		}
		return
	}
	if s.TokenURL == "" {
		l.report(prefix+"token_url", "or "+prefix+"token is required by the mechanism OAUTHBEARER", "set token_url, client_id and client_secret")
		return
	}
	if u, err := url.Parse(s.TokenURL); err != nil || u.Host == "" || !oneOf(u.Scheme, "https", "http") {
		l.report(prefix+"token_url", "is not an http or https URL", "write for example https://issuer.example/oauth2/token")
	}
	l.wantSASL("client_id", s.ClientID)
	l.wantSASL("client_secret", s.ClientSecret.Reveal())
}

func (l *loader) wantSASL(name, value string) {
	if value == "" {
		l.report("sink.kafka.sasl."+name, "is required by the mechanism "+l.cfg.Sink.Kafka.SASL.Mechanism, "set it, best as ${file:/path} or ${VARIABLE}")
	}
}
