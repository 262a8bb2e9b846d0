// Package metrics counts what a Processor and a Consumer do, for Prometheus.
//
//	name                                            type       labels
//	idempotency_claims_total                        counter    outcome: claimed, duplicate, in_progress, not_due, given_up
//	idempotency_duplicates_total                    counter    layer: store, memory
//	idempotency_runs_total                          counter    disposition: handled, skipped, dead_lettered, elsewhere, not_due, retry, lost, unavailable
//	idempotency_run_duration_seconds                histogram  of runs in which the handler ran
//	idempotency_handler_failures_total              counter    attempts that ended in an error
//	idempotency_leases_lost_total                   counter
//	idempotency_results_dropped_total               counter    too large for the store
//	idempotency_dead_letter_errors_total            counter    tries that failed: the message waits
//	idempotency_fail_open_runs_total                counter    without a claim, the store being unavailable
//	idempotency_shadow_decisions_total              counter    disposition: what would have become of messages, with Options.Shadow
//	idempotency_handlers_stuck                      gauge      that run though their context ended a while ago
//	idempotency_store_operation_duration_seconds    histogram  operation: claim, extend, complete, fail
//	idempotency_store_errors_total                  counter    operation: that gave no answer
//	idempotency_consumer_records_total              counter    topic, disposition
//	idempotency_consumer_record_duration_seconds    histogram  of each attempt at a record, middlewares included
//	idempotency_consumer_commits_total              counter    result: ok, error
//	idempotency_consumer_commit_duration_seconds    histogram
//	idempotency_consumer_paused_partitions          gauge
//	idempotency_consumer_handlers_abandoned_total   counter    cut off by a rebalance or a stop
//
// Claimed, in progress elsewhere and so on are outcomes of claims; completed,
// failed and dead-lettered are dispositions of runs. A label whose values are
// known beforehand has all of them from the start, so a rate sees the first
// event.
//
// Invariants:
//
//  1. No label holds anything from a record, except the topic.
//  2. Names and labels are part of the public contract.
//
// Non-goals: other metrics systems (the observers are easily written), metrics
// of the Kafka client (see franz-go's plugin kprom).
package metrics
