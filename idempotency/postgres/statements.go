package postgres

import (
	"strconv"
	"strings"
)

// statements are the texts for a single table, or a single partition.
// A partition is named by a literal: a parameter would make the server's
// generic plans lock every partition.
type statements struct {
	claim, claimLocked, claimFirst, claimNext, extend, complete, completeOrFail, fail, inspect, lock, release, purge string
}

// newStatements writes the statements for a table and, if partitioned, a slot.
func newStatements(table string, partitioned bool, slot int) statements {
	var slotColumn, slotValue, slotIs string
	if partitioned {
		literal := strconv.Itoa(slot)
		slotColumn, slotValue, slotIs = "slot, ", literal+"::smallint, ", " AND k.slot = "+literal
	}
	fill := func(sql string, more ...string) string {
		for {
			next := strings.NewReplacer(append([]string{
				"{table}", table,
				"{slot column}", slotColumn,
				"{slot value}", slotValue,
				"{row}", "k.scope = $1::text AND k.id = $2::text" + slotIs,
				"{claimable}", claimable,
				"{mismatch}", mismatch,
				"{held}", "{row} AND k.owner = $3::text AND k.fence = $4::bigint AND k.expires_at > clock_timestamp()",
				"{record}", recordColumns,
			}, more...)...).Replace(sql)
			if next == sql {
				return sql
			}
			sql = next
		}
	}
	return statements{
		claim:          fill(claimSQL, "{may}", "true"),
		claimLocked:    fill(claimSQL, "{may}", "pg_try_advisory_xact_lock($9::bigint)"),
		claimFirst:     fill(claimFirstSQL, "{may}", notAwaited),
		claimNext:      fill(claimFirstSQL, "{may}", "true"),
		extend:         fill(extendSQL),
		complete:       fill(completeSQL),
		completeOrFail: fill(completeOrFailSQL),
		fail:           fill(failSQL),
		inspect:        fill(inspectSQL),
		lock:           fill(inspectSQL + ` FOR UPDATE`),
		release:        fill(releaseSQL),
		purge:          fill(purgeSQL),
	}
}

// Parts common to the statements. A refusal is judged at the time of clock, a
// grant at the time of moment, repeated by excluded.updated_at in the
// conflict's branch.
const (
	// mismatch follows storage.Fingerprint.Conflicts.
	mismatch = `(k.fingerprint <> '' AND $3::text <> '' AND k.fingerprint <> $3::text
		AND split_part(k.fingerprint, ':', 1) = split_part($3::text, ':', 1))`

	// claimable tells whether a claim of row k is granted at {now}.
	claimable = `(k.expires_at <= {now} OR NOT {mismatch} AND (
		k.state = 'processing' AND (k.owner = $4::text OR k.blocked_until <= {now})
		OR k.state = 'retryable' AND k.blocked_until <= {now}))`

	// notAwaited lets the statement's commit not wait for the disk, nor for a
	// replica. The first claim of a Transactional need not: the handler's commit
	// waits for both, and a server forgetting the claim has forgotten the
	// transaction, too. Beside that, only the attempt may be forgotten: see
	// wary.
	notAwaited = `set_config('synchronous_commit', 'off', true) IS NOT NULL`

	recordColumns = `k.state, k.fingerprint, k.owner, k.fence, k.attempts, k.vanished, k.excused, k.blocked_until,
		k.result, k.reason, k.updated_at, k.expires_at, k.expires_at <= clock_timestamp()`
)

// insertSQL is the first claim of a key, at the time of moment.
const insertSQL = `
	INSERT INTO {table} AS k ({slot column}scope, id, state, fingerprint, owner, fence, attempts, reason,
		blocked_until, updated_at, expires_at)
	SELECT {slot value}$1::text, $2::text, 'processing', $3::text, $4::text,
		(extract(epoch FROM now) * 1000000)::bigint, 1, '',
		now + $5::bigint * interval '1 microsecond', now, now + $6::bigint * interval '1 microsecond'
	FROM {moment}
`

// claimFirstSQL is claimSQL for a missing key. claimFirstSQL returns no row,
// and does nothing, if the key is there, locked or being claimed: at half the
// cost, and without a wait for other users of the row. Hence the look first:
// the insert would wait for a change or deletion of the row without the key's
// locks. A query without tables looks at the condition before anything else,
// and so the time is taken behind the lock, and once, as it is volatile.
var claimFirstSQL = strings.ReplaceAll(insertSQL, "{moment}", `(
		SELECT clock_timestamp() AS now
		WHERE CASE WHEN EXISTS (SELECT FROM {table} AS k WHERE {row}) THEN false
			WHEN pg_try_advisory_xact_lock($9::bigint) AND {may}
			THEN pg_try_advisory_xact_lock($7::integer, $8::integer) ELSE false END
	) AS moment`) + `	ON CONFLICT ({slot column}scope, id) DO NOTHING
	RETURNING k.fence`

// claimSQL claims a key in a single statement. If the row says no, nothing is
// written and no transaction id is taken: a duplicate costs a read. If the row
// says yes, or is missing, the insert decides, on the row as it is then.
// claimSQL returns no row when somebody was faster in between, so the answer
// has to be read anew.
//
// Grantable claims of a key take turns: moment is read behind an advisory lock,
// lasting until the commit. A fence made of moment is greater than every
// earlier claim's, even if the earlier row was purged during the wait.
//
// Parameters: scope, id, fingerprint, owner, lease and retention in µs, the
// two halves of the lock's key; with a lock required to be free, the key.
var claimSQL = `
WITH clock AS MATERIALIZED (
	SELECT clock_timestamp() AS now
), known AS MATERIALIZED (
	SELECT k.state, k.fence, k.attempts, k.reason, k.result, {mismatch} AS mismatch,
		greatest(1, ceil(extract(epoch FROM k.blocked_until - clock.now) * 1000000))::bigint AS wait
	FROM {table} AS k, clock
	WHERE {row} AND NOT ` + strings.ReplaceAll(claimable, "{now}", "clock.now") + `
), gate AS MATERIALIZED (
	SELECT CASE WHEN EXISTS (SELECT FROM known) THEN false
		WHEN {may} THEN pg_advisory_xact_lock($7::integer, $8::integer) IS NOT NULL
		ELSE false END AS open
), moment AS MATERIALIZED (
	SELECT clock_timestamp() AS now FROM gate WHERE gate.open
), claimed AS (` + strings.ReplaceAll(insertSQL, "{moment}", "moment") + `	ON CONFLICT ({slot column}scope, id) DO UPDATE SET
		state = 'processing',
		fingerprint = CASE WHEN k.expires_at <= excluded.updated_at OR excluded.fingerprint <> ''
			THEN excluded.fingerprint ELSE k.fingerprint END,
		owner = excluded.owner,
		fence = CASE WHEN k.expires_at > excluded.updated_at AND k.state = 'processing' AND k.owner = excluded.owner
			THEN k.fence ELSE greatest(k.fence + 1, excluded.fence) END,
		attempts = CASE WHEN k.expires_at <= excluded.updated_at THEN 1
			WHEN k.state = 'processing' AND k.owner = excluded.owner THEN k.attempts
			ELSE k.attempts + 1 END,
		vanished = CASE WHEN k.expires_at <= excluded.updated_at THEN 0
			WHEN k.state = 'processing' AND k.owner <> excluded.owner THEN k.vanished + 1
			ELSE k.vanished END,
		excused = CASE WHEN k.expires_at <= excluded.updated_at THEN 0 ELSE k.excused END,
		reason = CASE WHEN k.expires_at <= excluded.updated_at THEN '' ELSE k.reason END,
		result = NULL,
		blocked_until = clock_timestamp() + $5::bigint * interval '1 microsecond', -- the row's lock was waited for
		updated_at = clock_timestamp(),
		expires_at = clock_timestamp() + $6::bigint * interval '1 microsecond'
	WHERE ` + strings.ReplaceAll(claimable, "{now}", "excluded.updated_at") + `
	RETURNING k.fence, k.attempts, k.vanished, k.excused, k.reason
)
SELECT 'claimed', fence, attempts, vanished, excused, reason, NULL::bytea, false, 0 FROM claimed
UNION ALL
SELECT state, fence, attempts, 0, 0, reason, result, mismatch, wait FROM known
UNION ALL
SELECT 'locked', 0, 0, 0, 0, '', NULL, false, 0 FROM gate WHERE NOT open AND NOT EXISTS (SELECT FROM known)`

// The changes by a lease's holder. The first four parameters are scope, id,
// owner and fence.
const (
	extendSQL = `
UPDATE {table} AS k SET
	blocked_until = clock_timestamp() + $5::bigint * interval '1 microsecond',
	expires_at = greatest(k.expires_at, clock_timestamp() + $5::bigint * interval '1 microsecond'),
	updated_at = clock_timestamp()
WHERE {held} AND k.state = 'processing'`

	completeSQL = `
UPDATE {table} AS k SET
	state = 'completed', result = $5::bytea, reason = '', blocked_until = NULL, updated_at = clock_timestamp(),
	expires_at = clock_timestamp() + $6::bigint * interval '1 microsecond'
WHERE {held} AND k.state = 'processing'`

	// completeOrFailSQL fails, with pgerrcode.InvalidTextRepresentation, without a
	// row to complete, so that a commit behind it does not commit.
	completeOrFailSQL = `
WITH completed AS (` + completeSQL + ` RETURNING k.fence)
SELECT ('the lease is lost, completed ' || count(*))::integer FROM completed HAVING count(*) = 0`

	failSQL = `
UPDATE {table} AS k SET
	state = $5::text, reason = $6::text, attempts = k.attempts - $7::integer, excused = k.excused + $8::integer,
	blocked_until = clock_timestamp() + $9::bigint * interval '1 microsecond', -- null if terminal
	updated_at = clock_timestamp(),
	expires_at = clock_timestamp() + $10::bigint * interval '1 microsecond'
WHERE {held} AND k.state = 'processing'`
)

// An operator's statements. The first two parameters are scope and id.
const (
	inspectSQL = `
SELECT {record} FROM {table} AS k WHERE {row}`

	releaseSQL = `
UPDATE {table} AS k SET
	state = 'retryable', owner = '', attempts = 0, vanished = 0, excused = 0, blocked_until = clock_timestamp(), updated_at = clock_timestamp()
WHERE {row}`

	purgeSQL = `
DELETE FROM {table} AS k WHERE {row} AND k.expires_at > clock_timestamp()
	AND k.state = ANY ($3::text[])
	AND k.updated_at <= clock_timestamp() - $4::bigint * interval '1 microsecond'`

	// purgeScopeSQL takes the next batch of a scope's keys, in the order of ids,
	// and returns the last of them. Rows being changed right now are not waited
	// for.
	purgeScopeSQL = `
WITH doomed AS MATERIALIZED (
	SELECT k.id FROM {table} AS k
	WHERE k.scope = $1::text AND k.id > $2::text AND k.expires_at > clock_timestamp()
		AND k.state = ANY ($3::text[])
		AND k.updated_at <= clock_timestamp() - $4::bigint * interval '1 microsecond'
	ORDER BY k.id LIMIT $5::bigint
	FOR UPDATE SKIP LOCKED
), deleted AS (
	DELETE FROM {table} AS k USING doomed WHERE k.scope = $1::text AND k.id = doomed.id
	RETURNING k.id
)
SELECT count(*), (SELECT max(id) FROM doomed) FROM deleted`
)
