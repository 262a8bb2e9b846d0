// Package dynamodb keeps idempotency keys in a table of Amazon DynamoDB, by
// conditional writes.
//
// The table has a single item per key, with the partition key pk, a string:
// scope/id. Keys of a single scope thus spread over all partitions, and the
// table's whole throughput is there for each scope. In return, Purge of a scope
// reads the table: a partition per scope would bound a consumer to 1000 claims
// a second.
//
// Make the table by CreateTable, by Schema, or in CloudFormation:
//
//	IdempotencyTable:
//	  Type: AWS::DynamoDB::Table
//	  Properties:
//	    BillingMode: PAY_PER_REQUEST
//	    AttributeDefinitions: [{AttributeName: pk, AttributeType: S}]
//	    KeySchema: [{AttributeName: pk, KeyType: HASH}]
//	    TimeToLiveSpecification: {AttributeName: ttl, Enabled: true}
//
// or in Terraform:
//
//	resource "aws_dynamodb_table" "idempotency" {
//	  name         = "idempotency"
//	  billing_mode = "PAY_PER_REQUEST"
//	  hash_key     = "pk"
//	  attribute {
//	    name = "pk"
//	    type = "S"
//	  }
//	  ttl {
//	    attribute_name = "ttl"
//	    enabled        = true
//	  }
//	}
//
// A consumer's role needs dynamodb:GetItem, PutItem and UpdateItem; an
// operator's Scan as well, and DescribeTable and DescribeTimeToLive for Check.
//
// Invariants:
//
//  1. Each change is a conditional write on what was read, or on the lease the
//     caller holds. A write failing because an earlier write of the same call
//     was carried out, the answer lost, counts as carried out.
//  2. No read is eventually consistent.
//  3. Whether a record is forgotten is part of the condition. DynamoDB's time
//     to live, perhaps days late, only clears up, and at the earliest a minute
//     after the record's end: fences then never repeat.
//  4. A lease is not taken over before its end by the earliest estimate of the
//     server's clock, and ends late enough by the latest.
//
// # Time
//
// DynamoDB offers no clock to the conditions. The header Date of each answer
// bounds the time: at first to a second and a round trip, soon to little more
// than a round trip. After a minute without an answer, or a suspension of the
// machine, a client reads a key first. Of the local clock only differences
// count, so a client whose clock is off by hours does no harm.
//
// Each estimate is off by a second and a round trip at most, two clients' hence
// by two seconds and both round trips, as long as DynamoDB's servers agree on
// the time; Options.Margin, a second, covers their disagreement. So much
// longer, and mostly little more than the margin, a vanished holder's lease
// lasts, and a failed key waits for the next attempt. Choose leases of ten
// seconds or more, so this does not matter. Two clients may hold a lease at a
// time if servers are further apart than the margin, or if a machine is paused
// and the wall clock stands still too: fencing tokens are for that.
//
// # Cost
//
// In write request units, for an item of up to 1 KB; a result adds one for each
// further KB:
//
//	message, handled at the first attempt       2   claim, complete
//	each heartbeat of a long handler            1
//	each failed attempt                         3   fail, and two for the next claim, refused at first
//	duplicate                                   1   the size of the stored item counts
//	purge                                       1   and a read unit per 4 KB of the table
//	deletion by time to live                    0
//
// Large results make duplicates dear: a refused write is charged by the size of
// the item, 1 unit per KB. Keep a reference instead of a document, or put
// package memory's layer in front.
//
// # What may happen
//
//	event                               what happens                             remedy
//	throttling, capacity exceeded       the SDK repeats; then an error, and      on-demand billing; more capacity
//	                                    the message is tried again
//	region or network down              an error: see the Processor's FailOpen   wait
//	answer lost                         the repetition answers as the lost one   none needed
//	table missing, another key          an error that says so                    CreateTable; Check
//	time to live off, or another        forgotten keys stay and are paid for     Check prints the command
//	attribute's
//	table restored from a backup        keys since then are new again, and       restore before consumers start;
//	                                    so are finished messages                 skip to the backup's offsets
//	table deleted                       all keys are new                         deletion protection
//	global table                        two regions can claim one key: each      one region per scope, or
//	                                    decides alone, the last writer wins      multi-Region strong consistency
//	global table, strongly consistent   writes of one key in two regions are     none needed
//	                                    refused with an error, and repeated
//	DAX in front                        stale reads                              give New the plain client
//	result over 400 KB less 3 KB        ErrResultTooLarge, nothing is sent       keep a reference
//	someone else's items in the table   an error that names the item             a table of its own
//
// Non-goals: transactions with business data in DynamoDB, several items per key.
package dynamodb
