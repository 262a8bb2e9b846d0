package sink

import "time"

// Observer is told of everything that an operator should see in a metric or in
// the readiness answer. The methods are called from several goroutines and must
// not block.
type Observer interface {
	// Reconnect is called for each attempt to connect to a broker after a failed
	// attempt.
	Reconnect()
	// PartitionsChanged is called when a topic in use got another number of
	// partitions: keys move to other partitions, and the order of a key's events
	// does not hold across the change.
	PartitionsChanged(topic string, from, to int32)
	// TopicRemade is called when a topic in use was deleted and created again:
	// the events acknowledged there are gone.
	TopicRemade(topic string)
	// TopicWaiting is called with true when a delivery stops for a missing topic,
	// and with false when the delivery goes on.
	TopicWaiting(topic string, waiting bool)
	// Refused is called with a reason when brokers refuse records through no
	// fault of the events, which are tried again and again; and with "" when
	// brokers take them again.
	Refused(reason, remedy string)
	// SchemaWaiting is called with the reason when a delivery stops for a schema, and with
	// nil when the delivery goes on.
	SchemaWaiting(reason error)
	// ValuesWaiting is called with the reason when a delivery stops for the claim store, and
	// with nil when the delivery goes on.
	ValuesWaiting(reason error)
	// TopicUsed is called before events are written to a topic: the first time,
	// after the topic was gone, and at most once a minute.
	TopicUsed(topic string)
	// Throttled is called when a broker makes the client wait because of a quota.
	Throttled(wait time.Duration)
	// Answered is called for each answer of a broker about events sent; see
	// Probe.
	Answered()
}

// TransactionObserver is told of transactions. The methods must not block.
type TransactionObserver interface {
	// TransactionOpen is called when the records of a transaction go out, and,
	// with the zero time, when the transaction has ended.
	TransactionOpen(since time.Time)
	// TransactionCommitted is called after a commit, with the number of records,
	// the bytes of their keys, values and headers, and the time brokers took for
	// the answer to EndTxn.
	TransactionCommitted(records int, bytes int64, took time.Duration)
	// TransactionAborted is called after an abort.
	TransactionAborted()
}

// WithObserver reports to o.
func WithObserver(o Observer) Option { return func(k *Kafka) { k.observer = o } }

// WithTransactionObserver reports transactions to o.
func WithTransactionObserver(o TransactionObserver) Option {
	return func(k *Kafka) { k.transactions = o }
}

// Unobserved is the Observer by default: it does nothing. An observer of a part
// embeds it.
var Unobserved Observer = unobserved{}

// unobserved is both observers by default.
type unobserved struct{}

func (unobserved) Reconnect()                             {}
func (unobserved) PartitionsChanged(string, int32, int32) {}
func (unobserved) TopicRemade(string)                     {}
func (unobserved) TopicWaiting(string, bool)              {}
func (unobserved) Refused(string, string)                 {}
func (unobserved) SchemaWaiting(error)                    {}
func (unobserved) ValuesWaiting(error)                    {}
func (unobserved) TopicUsed(string)                       {}
func (unobserved) Throttled(time.Duration)                {}
func (unobserved) Answered()                              {}

func (unobserved) TransactionOpen(time.Time)                      {}
func (unobserved) TransactionCommitted(int, int64, time.Duration) {}
func (unobserved) TransactionAborted()                            {}
