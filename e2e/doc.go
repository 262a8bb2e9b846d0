// Package e2e proves the connector from outside: the tests build the program,
// run it as a process with a configuration file, between a real PostgreSQL and
// a Kafka broker that outlive it, do to it what operations do, and let package
// checker judge what arrived.
//
// The broker is kfake, or Apache Kafka (see package kafkatest). Random choices
// come from one seed, which each test logs; CDC_OUTBOX_SEED sets it. Other
// variables:
//
//	CDC_OUTBOX_E2E_BINARY   the program to test, instead of building it
//	CDC_OUTBOX_E2E_KILLS    how often TestE2EKilled kills it
//	CDC_OUTBOX_TEST_ROUNDS  how often instances take the slot from each other in TestE2ELatestRecordsStayLast
//	CDC_OUTBOX_CAMPAIGN     how often TestE2ECampaign kills something
//	CDC_OUTBOX_CAMPAIGN_LIMIT    after which time it begins no more of that
//	CDC_OUTBOX_CAMPAIGN_CONFIG   more of the connector's configuration there
//	CDC_OUTBOX_CAMPAIGN_WHOLE    that it has transaction_boundaries, with transaction.version 2 alone
//	CDC_OUTBOX_SOAK=1       the outage test in full: 10 minutes, 1,000,000 rows
//	CDC_OUTBOX_SOAK_OUTAGE, CDC_OUTBOX_SOAK_ROWS   the same in other sizes
//	CDC_OUTBOX_MUTANTS=1    the tests of the tests: broken programs must fail
package e2e
