// Package consumer handles records of Kafka once, as a member of a consumer
// group (Consumer) or within a poll loop of your own (Once). It is built on
// franz-go.
//
//	broker ⇄ kgo.Client      fetches, heartbeats, rebalances: its own goroutines
//	            │ PollFetches, on Run's goroutine; AllowRebalance at once after
//	            ▼
//	         scheduler       partition → lanes (a partition's, or a key's) → ready
//	            │ the first record of a lane, if no breaker holds it
//	            ▼
//	         worker          Concurrency of them: middlewares → Once → Runner → Handler
//	            │ Done                      │ not Done
//	            ▼                           ▼
//	         progress        the lane waits (Wait, or a backoff) and tries the
//	            │            same record again; other lanes go on
//	            ▼
//	         committer       every CommitInterval, and before a partition is
//	                         given up: the end of what is finished without a gap
//
// A partition's life:
//
//	polled ─▶ open ──revoked──▶ closed: nothing starts ─▶ handlers end, or are
//	            │                    cut off by ErrCutOff ─▶ commit ─▶ given up
//	            ├──lost──▶ closed ─▶ cut off by ErrCutOff ─▶ given up
//	            └──stop──▶ closed ─▶ handlers end, or are cut off by ErrCutOff
//	                                 ─▶ commit ─▶ group left
//
// Goroutines: the poller is Run's caller. Run starts and joins Concurrency
// workers, the commit loop, the retention watch and the Runner's maintenance. The rebalance callbacks run
// on a goroutine of the client.
//
// # Outcomes of a record
//
//	Handled, Skipped, DeadLettered  finished
//	Elsewhere                       the lane waits for the other's lease, then tries again
//	Retry, Lost                     the lane waits, then tries again, without calling the
//	                                handler if what it came to is Pending
//	Unavailable                     the lane waits, longer each time; if three lanes in a row get no
//	                                answer, all wait, and one at a time tries, until the store answers
//
// At the start, Run waits, with a warning, for brokers that do not answer. A
// lasting error (a wrong password, a forbidden group) ends Run.
//
// Failing closed, as here, is the default; failing open is an option of the
// Runner. A record without a usable id, or with a known id and another payload,
// is never run: it goes to the Runner's dead letters.
//
// # Slow handlers
//
// Heartbeats are sent in the background, and polling goes on while handlers
// run, so there is no max.poll.interval.ms: a handler may take hours without
// the group noticing, and the lease is extended all the while. A rebalance,
// however, waits for it up to Config.RevokeTimeout and then ends the context.
//
// Invariants:
//
//  1. No offset is committed beyond an unfinished record.
//  2. Records of a partition (PartitionOrder) or of a key in a partition
//     (KeyOrder) are handled in turn, in the order of their offsets, also
//     across retries, as long as the partition is not lost.
//  3. A partition is given up only when none of its handlers runs, or they have
//     ignored the end of their contexts for RevokeTimeout; no commit comes
//     afterwards.
//  4. The memory of a partition is bounded: unfinished records, finished ones
//     behind them, and one fetch not taken on yet.
//  5. A record is never skipped because an id, a store or a dead-letter topic
//     is missing.
//
// Non-goals: transactions across consuming and producing (see
// GroupTransactSession), share groups, reordering, routing retries through
// topics.
package consumer
