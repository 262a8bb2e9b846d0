package transform

import "github.com/twmb/franz-go/pkg/kgo"

// contextHeaders are the headers in which Debezium names the connector, before all
// others, but for the random id of a run: a replay would give other records.
func contextHeaders(ev EventOptions) []kgo.RecordHeader {
	if ev.Compat != CompatDebezium || ev.Debezium.TopicPrefix == "" || !ev.Debezium.ExtendedHeaders {
		return nil
	}
	return []kgo.RecordHeader{
		{Key: "__debezium.context.connectorLogicalName", Value: []byte(ev.Debezium.TopicPrefix)},
		{Key: "__debezium.context.taskId", Value: []byte("0")},
		{Key: "__debezium.context.connectorName", Value: []byte("postgresql")},
	}
}
