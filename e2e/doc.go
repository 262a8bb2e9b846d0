// Package e2e proves the connector from outside: the tests build the program,
// run a process with a configuration file, between a real PostgreSQL and a Kafka
// broker outliving the process, disturb all three, and let package checker judge
// the records.
//
// The broker is kfake, or Apache Kafka (see package kafkatest). Random choices
// come from a single seed, logged by each test; CDC_OUTBOX_SEED sets it. Other
// variables:
//
//	CDC_OUTBOX_E2E_BINARY   the program to test, instead of building it
//	CDC_OUTBOX_E2E_KILLS    how often tests such as TestE2EKilled kill it
//	CDC_OUTBOX_TEST_ROUNDS  how often instances take the slot from each other in TestE2ELatestRecordsStayLast
//	CDC_OUTBOX_TEST_DELAY   what proxies hold bytes of either direction back for (10ms), in tests without faults of proxies
//	CDC_OUTBOX_CAMPAIGN     how often TestE2ECampaign kills something
//	CDC_OUTBOX_CAMPAIGN_LIMIT    the time for new disturbances there, and in TestE2EFleetCampaign
//	CDC_OUTBOX_CAMPAIGN_CONFIG   more of the connector's configuration there
//	CDC_OUTBOX_CAMPAIGN_WHOLE    not empty: with transaction_boundaries, and transaction.version 2 alone
//	CDC_OUTBOX_TOKENS       how long TestE2ETokensOfSeconds goes on, with tokens of a minute
//	CDC_OUTBOX_CAMPAIGN_FLEET    how often TestE2EFleetCampaign disturbs 100 pipelines on five members, in place of twelve on three
//	CDC_OUTBOX_CAMPAIGN_DELIVERY the delivery of all pipelines there, in place of half each
//	CDC_OUTBOX_SOAK=1       the outage test in full: 10 minutes, 1,000,000 rows
//	CDC_OUTBOX_SOAK_OUTAGE, CDC_OUTBOX_SOAK_ROWS   the same in other sizes
//	CDC_OUTBOX_UPGRADES=1   all drills of major upgrades, and not only two
//	CDC_OUTBOX_LOSSES=1     all drills of an old slot on a promoted standby
//	CDC_OUTBOX_REGISTRY_URL  a schema registry, in place of a stand-in
//	CDC_OUTBOX_MUTANTS=1    the tests of the tests: broken programs must fail
package e2e
