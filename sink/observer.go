package sink

// Observer is told what an operator should see in a metric or in the readiness
// answer. Every member is optional. They are called from several goroutines
// and must not block.
type Observer struct {
	// Reconnect is called for each attempt to connect to a broker that follows
	// a failed one.
	Reconnect func()
	// PartitionsChanged is called when a topic in use got another number of
	// partitions: keys move to other partitions, so that the order of a key's
	// events no longer holds across the change.
	PartitionsChanged func(topic string, from, to int32)
	// TopicWaiting is called with true when a delivery stops for a topic that
	// does not exist, and with false when it goes on.
	TopicWaiting func(topic string, waiting bool)
	// Answered is called for each answer of a broker about events that were sent
	// to it; see Probe.
	Answered func()
}

func (o *Observer) answered() {
	if o.Answered != nil {
		o.Answered()
	}
}

func (o *Observer) reconnect() {
	if o.Reconnect != nil {
		o.Reconnect()
	}
}

func (o *Observer) partitionsChanged(topic string, from, to int32) {
	if o.PartitionsChanged != nil {
		o.PartitionsChanged(topic, from, to)
	}
}

func (o *Observer) topicWaiting(topic string, waiting bool) {
	if o.TopicWaiting != nil {
		o.TopicWaiting(topic, waiting)
	}
}
