package main

import (
	"net/url"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// road is how a subject reaches PostgreSQL and Kafka.
type road struct {
	url, brokers string
	ca           string // a file with the brokers' authority; "": no TLS on either side
}

func (s *stage) road() road {
	if s.tls {
		return road{s.db.TLSURL, s.kafka.TLSAddr, s.kafka.CA}
	}
	return road{s.db.URL, s.kafka.Addr, ""}
}

// wiring are cdc-outbox's settings.
func (r road) wiring(t task) []string {
	return append(rig.Wiring(r.url, t.slot, r.brokers, t.topic), r.trust()...)
}

// trust are cdc-outbox's settings for TLS to Kafka, if any.
func (r road) trust() []string {
	if r.ca == "" {
		return nil
	}
	return []string{"sink.kafka.tls.ca_file=" + r.ca}
}

// database are Debezium's properties.
func (r road) database() properties {
	u, _ := url.Parse(r.url) // made by pgserver
	password, _ := u.User.Password()
	return properties{
		"database.hostname": u.Hostname(),
		"database.port":     u.Port(),
		"database.user":     u.User.Username(),
		"database.password": password,
		"database.dbname":   strings.TrimPrefix(u.Path, "/"),
		"database.sslmode":  u.Query().Get("sslmode"),
	}
}

// kafka are a worker's properties, for all of its clients.
func (r road) kafka() properties {
	p := properties{"bootstrap.servers": r.brokers}
	if r.ca == "" {
		return p
	}
	for _, client := range []string{"", "producer.", "admin."} {
		p[client+"security.protocol"], p[client+"ssl.truststore.type"], p[client+"ssl.truststore.location"] = "SSL", "PEM", r.ca
	}
	return p
}
