package consumer

// DeadLetterTopicWithin is DeadLetterTopic with a timeout.
var DeadLetterTopicWithin = deadLetterTopic
