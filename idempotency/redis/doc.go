// Package redis keeps idempotency keys in Redis 7 or later, Redis Cluster or
// Valkey. Each operation is an atomic script and a single round trip, both
// perhaps shared with operations on other keys.
//
// Invariants:
//
//  1. A key is a single string, which the server forgets when the record's
//     retention is over. There is no other data. A foreign value is left
//     alone, and an error.
//  2. Every decision is made by the master, on its clock (TIME). The clocks of
//     clients do not matter.
//  3. A script that settles a key compares owner and fence in the same step.
//  4. A script sent twice, because an answer was lost, does the work once.
//
// # What Redis can lose
//
// Redis answers before the replicas, and usually before the disk, have the write.
// A lost key is absent: the message is run again, unnoticed as a duplicate.
// Fences grow beyond forgotten fences all the same, because they follow the
// clock, and a holder from before the loss gets ErrLeaseLost. So the resource
// written to can still refuse the older of two holders (FenceFrom), or the
// changed state itself can be the guard (package guard). Where a second run must
// not happen, use package postgres.
//
//	event                              what happens                            remedy
//	restart without persistence        all keys are lost                       appendonly yes
//	crash of the process,              nothing is lost, or up to two seconds   appendfsync always, which costs
//	  appendfsync everysec               of writes while the disk is busy        a disk write per operation
//	                                     (redis, aof.c: flushAppendOnlyFile)
//	crash of the machine,              up to two seconds of writes are lost    appendfsync always
//	  appendfsync everysec
//	start with data on disk            calls fail with LOADING until the data  wait
//	                                   are read
//	failover                           what the new master had not got is      min-replicas-to-write, WaitReplicas:
//	                                   lost; all of it if it was empty           less is lost, not nothing
//	master cut off from the majority   it goes on granting what the failover   min-replicas-to-write 1: it refuses
//	                                   then forgets                              claims after min-replicas-max-lag
//	maxmemory, another policy          keys vanish before their time           maxmemory-policy noeviction
//	  than noeviction
//	maxmemory, noeviction              claims fail with OOM; what was claimed  more memory, Purge, a shorter
//	                                   can be settled, inspected, purged         retention
//	FLUSHALL, keys deleted by hand     they are lost                           ACL; Purge and Release instead
//	SCRIPT FLUSH                       nothing: scripts are sent again
//	server silent beyond the lease     nothing is lost; holder and successor   a lease longer than the usual
//	                                   are told apart by owner and fence         failover
//	call without an answer             it may have been carried out, also      repeat it with the same owner
//	                                   later: a claim then holds the key
//	                                   until its lease ends
//	clock of the server jumps ahead    leases end early: their holders are     NTP that slews, on all nodes
//	                                   told so (ErrLeaseLost) if somebody
//	                                   else claimed
//	clock of the server jumps back,    leases last longer; the fence of a key  the same
//	  or the next master's is behind   that was forgotten may repeat
//
// Check finds the settings among these. Tests show each row a test can bring
// about.
//
// WAIT (Options.WaitReplicas) makes a claim or completion fail unless so many
// replicas have the write in memory. There is no agreement among them: after a
// failure the write stays on the master, a replica without the write may be
// promoted (Sentinel and Cluster prefer, and do not insist on, the most recent),
// and a replica restarting without persistence has forgotten the write.
//
// # Cluster and replicas
//
// The hash tag of "prefix:{scope/id}" is the whole key, so keys spread over all
// nodes; a closing brace in an id becomes %7D, and a percent sign %25. Scripts
// always go to the master, also with ReadOnly or RouteRandomly set on a cluster
// client. A redis.Ring is refused: a Ring moves keys when a server is down.
//
// # Shared round trips
//
// Claims and completions made at the same moment, by several workers of one
// Store, go to their server in a single pipeline: the claims as a single script
// on their keys, and the completions as another. There is no timer and no
// queue: a call waits until the ready goroutines have run, and for nobody's
// round trip. A call without company goes by itself. The more workers
// there are, the more share a round trip, up to 64. A consumer's worker claims
// the next message in the round trip completing the message before, if a single
// server has both keys.
//
// Each call keeps its own answer, error and context. A broken pipeline
// leaves calls without an answer in doubt, like a broken single call; they are
// repeated by the same owner as ever. A refused call
// (an unknown script, a moved or foreign key) is repeated by itself. In a
// cluster each master has separate pipelines, so that a silent master holds up
// its own keys only, and each call is a separate script, as the keys of a script
// must be of a single hash slot there. Results of more than 4 KiB, and
// all calls with WaitReplicas, go by themselves. Hooks of the client see
// pipelines.
//
// # Rights
//
// A user needs ~prefix:* and
//
//	+evalsha +eval +time +get +set +del
//	+script|load +scan          Purge of a scope
//	+info +config|get           Check
//	+wait                       Options.WaitReplicas
//
// and what go-redis asks for in a cluster (+cluster|slots +command), also while
// hash slots move and with ReadOnly (+asking +readonly).
//
// # Memory
//
// A completed key without a result takes about 350 bytes with a UUID as the id
// and a consumer's default fingerprint, 290 without. MEMORY USAGE says 296 and
// 232, without the entry for the expiry.
//
// Non-goals: emulators without Lua's library struct (miniredis, fakeredis):
// package memory is for tests; renamed commands; Redis before 7; proxies
// spreading keys over servers, unknown to the client. A proxy sending a script by
// the first key alone would let a key be claimed twice.
package redis
