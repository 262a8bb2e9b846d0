// Package broker is the room for Kafka, as catalog is for PostgreSQL: it makes every client
// of the connector's, tells whether a client can still write, keeps clients from silent
// brokers, and asks the cluster about topics, settings, offsets, transactions, groups,
// features and clocks. It has the command lines of Kafka's tools for remedies. A new question
// belongs in the file of its subject.
//
// Each function asks once, until ctx ends, and returns the brokers' refusal as a *kerr.Error:
// whether to ask again, and the remedy, is for callers (MayPass, Unknown, Tools). An
// incomplete answer comes with a Partly error. All functions may be called from several
// goroutines.
//
// Non-goals: the options of a client (sink), records and transactions (sink), the
// checkpoint's topic (checkpoint/store), a partition's content (kafkalog).
package broker
