package e2e

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// mutant is the program with a mistake, to be found by the test.
type mutant struct {
	mistake string
	patches []patch
	test    string
	finds   string // regular expression of the test's output
}

// patch replaces a piece found in a source file once.
type patch struct{ file, old, new string }

var mutants = []mutant{
	{
		mistake: "confirms what it received",
		patches: []patch{{"wal/status.go", "flushed := min(s.confirmed.Load(), received)", "flushed := received"}},
		test:    "TestE2ESilentBroker",
		finds:   "(lost|premature): ",
	},
	{
		mistake: "saves and confirms what it received",
		patches: []patch{{"checkpoint/tracker.go", "{ return t.position }", "{ return t.last }"}},
		test:    "TestE2EKilled",
		finds:   "(lost|torn|premature): ",
	},
	{
		mistake: "takes the newest ack for all before it",
		patches: []patch{{"sink/write.go", "if len(k.failed) == 0 {", "if k.failed[&round[len(round)-1].Record] == nil {"}},
		test:    "TestE2ERefusedEventsBecomeDeadLetters",
		finds:   "lost: ",
	},
	{
		mistake: "confirms position 0",
		patches: []patch{{"wal/status.go", "flushed := min(s.confirmed.Load(), received)", "flushed := uint64(0)"}},
		test:    "TestE2EEveryEventOnceAndAsWritten",
		finds:   "after the drain the slot is confirmed to",
	},
	{
		mistake: "skips a record that failed",
		patches: []patch{{"internal/pipeline/delivery/delivery.go", "err := out.DeadLetter(ctx, ev, bad)", "err := error(nil)"}},
		test:    "TestE2ERefusedEventsBecomeDeadLetters",
		finds:   "lost: ",
	},
	{
		mistake: "starts where the server is, not where the checkpoint is",
		patches: []patch{{"internal/pipeline/stream/acquire.go", "s.recall(&h, seen.Slot)", "s.recall(&h, seen.Slot)\n\t\th.start = max(h.start, seen.CurrentLSN)"}},
		test:    "TestE2EKilled",
		finds:   "lost: ",
	},
	{
		mistake: "forgets at a reconnect what it has taken in",
		patches: []patch{
			{"checkpoint/reading.go", "return r.replaying && p.CommitLSN < r.end || p.CommitLSN == r.cut.Commit && p.Seq <= r.cut.Seq", "return false"},
		},
		test:  "TestE2EReconnectBesideSilentBroker",
		finds: "came again",
	},
	{
		mistake: "confirms at a reconnect what is still in flight",
		patches: []patch{{"internal/pipeline/stream/acquire.go", "err = s.open(ctx, repl, &h)", "h.start = max(h.start, s.intake.reading.End())\n\th.confirmed = h.start\n\terr = s.open(ctx, repl, &h)"}},
		test:    "TestE2EReconnectBesideSilentBroker",
		finds:   "(lost|premature): |ended by itself",
	},
	{
		mistake: "believes the checkpoint of another slot",
		patches: []patch{{"checkpoint/owner.go", "if c.Slot == slot {", "if true {"}},
		test:    "TestE2EOneKeyForTwoSlots",
		finds:   "lost: ",
	},
	{
		mistake: "judges a replay by the OIDs of now",
		patches: []patch{{"internal/pipeline/stream/outboxtables.go", "o.byOID && o.owned.Has(row.Relation.OID, commit)", "o.byOID"}},
		test:    "TestE2EATableThatTakesTheOutboxsName",
		finds:   "came again: ",
	},
	{
		mistake: "takes an event for a checkpoint",
		patches: []patch{{"checkpoint/store/kafka_doubtful.go", `!strings.HasPrefix(h.Key, "cdc-")`, `strings.HasPrefix(h.Key, "\x00")`}},
		test:    "TestE2EForgedCheckpoint$/^written",
		finds:   "lost: ",
	},
	{
		mistake: "answers the server only when there is something to confirm",
		patches: []patch{
			{"wal/status.go", "\t\t\trequestReply = true\n", "\t\t\tcontinue\n"},
			{"wal/handle.go", "replyRequested := b[16] != 0; replyRequested", "replyRequested := b[16] != 0; replyRequested && false"},
		},
		test:  "TestE2ESilentBroker",
		finds: "did not stay up",
	},
	{
		mistake: "leaves messages and rows in the server's order",
		patches: []patch{{"wal/stream.go", "s.order = &sequencer{}", "s.order = nil"}},
		test:    "TestE2EMessageMode",
		finds:   "misplaced: ",
	},
	{
		mistake: "saves checkpoints too seldom",
		patches: []patch{{"checkpoint/store/open.go", "100 * time.Millisecond", "5 * time.Second"}},
		test:    "TestE2EKilled",
		finds:   "repeated an event published",
	},
	{
		mistake: "takes an error of EndTxn for a commit",
		patches: []patch{{"sink/transact.go", `return unsettled(fmt.Errorf("commit the transaction: %w", err))`, "_ = err"}},
		test:    "TestE2EExactlyOnce$/^EndTxn_lost_until_the_timeout",
		finds:   "(lost|torn|premature): |ended by itself",
	},
	{
		mistake: "takes an error of EndTxn for an abort",
		patches: []patch{{"sink/transact.go", "import (\n\t\"context\"", "import (\n\t\"context\"\n\t\"errors\""}, {"sink/transact.go", "\t\tif err != nil {\n\t\t\treturn nil, x.k.stop(ctx, x.outlived(err))\n\t\t}\n\t\tif !again",
			"\t\tif errors.Is(err, ErrUnsettled) {\n\t\t\tx.k.client.Close()\n\t\t\tx.k.client, _ = kgo.NewClient(x.k.clientOpts...)\n\t\t\tx.k.partitions.reset()\n\t\t\tx.enlisted = nil\n\t\t\tcontinue\n\t\t}\n\t\tif !again"}},
		test:  "TestE2EExactlyOnce$/^answers_to_EndTxn_lost_until_the_client_gives_up",
		finds: "came again",
	},
	{
		mistake: "asks again for the end of a transaction that has no epoch of its own",
		patches: []patch{{"sink/epochs.go", "kmsg.EndTxn && !e.differ.Load()", "kmsg.EndTxn && false"}},
		test:    "TestE2EExactlyOnceWithALateEndTxn$/^transactions_1",
		finds:   "ended a transaction that is not its own",
	},
	{
		mistake: "answers a fencing by fencing",
		patches: []patch{{"sink/transact.go", "import (\n\t\"context\"", "import (\n\t\"context\"\n\t\"errors\""}, {"sink/transact.go", "\t\tif err != nil {\n\t\t\treturn nil, x.k.stop(ctx, x.outlived(err))\n\t\t}\n\t\tif !again",
			"\t\tif errors.Is(err, ErrFenced) {\n\t\t\tx.k.client.Close()\n\t\t\tx.k.client, _ = kgo.NewClient(x.k.clientOpts...)\n\t\t\tx.k.partitions.reset()\n\t\t\tx.enlisted = nil\n\t\t\tcontinue\n\t\t}\n\t\tif err != nil {\n\t\t\treturn nil, x.k.stop(ctx, x.outlived(err))\n\t\t}\n\t\tif !again"}},
		test:  "TestE2EExactlyOnce$/^spare_takes_over",
		finds: "came again|reordered: ",
	},
	{
		mistake: "confirms before the commit is known",
		patches: []patch{{"internal/pipeline/stream/transaction.go", "cp = k.next(lsn, landmark, cut, k.initial.after(batch[:n]))", "cp = k.next(lsn, landmark, cut, k.initial.after(batch[:n]))\n\t\t\tk.committed(cp, began)"}},
		test:    "TestE2EExactlyOnce$/^killed",
		finds:   "(lost|torn|premature): |ended by itself",
	},
	{
		mistake: "drops a refused record with its transaction",
		patches: []patch{{"internal/pipeline/delivery/transact.go", "if len(refused) == 0 {", "if true {"}},
		test:    "TestE2EExactlyOnceWithRefusedEvents",
		finds:   "(lost|torn): ",
	},
	{
		mistake: "reads the checkpoint up to the last stable offset",
		patches: []patch{{"internal/broker/kafkalog/partition.go", "stable >= 0 && stable < l.end", "stable < 0"}},
		test:    "TestE2EExactlyOnceBesideAnotherTransaction",
		finds:   "came again|ended by itself",
	},
	{
		mistake: "believes a checkpoint that was aborted after it was committed",
		patches: []patch{{"checkpoint/store/kafka_doubtful.go", "l.aborted = abortedIn(all)", "_ = all"}},
		test:    "TestE2EExactlyOnceWithHalfOfATransactionEnded$/^the_checkpoint_with_version_2",
		finds:   "lost: |did not arrive",
	},
	{
		mistake: "writes again what consumers see of a transaction that was aborted",
		patches: []patch{{"sink/plan.go", "x.visible != nil && x.leaveOut(&p.Record)", "false"}},
		test:    "TestE2EExactlyOnceWithHalfOfATransactionEnded$/^all_but_the_checkpoint_with_version_1",
		finds:   "came again",
	},
	{
		mistake: "forgets where in a transaction it was",
		patches: []patch{{"checkpoint/store/codec.go", "if cp.Cut, err = d.Cut.cut(); err != nil {", "if false {"}},
		test:    "TestE2EExactlyOnceWithinALargeTransaction",
		finds:   "comes|records, want|ended by itself",
	},
	{
		mistake: "cuts a transaction where a batch is full",
		patches: []patch{{"internal/pipeline/stream/hold.go", "if !q.items[end].Joined {", "if true {"}},
		test:    "TestE2EExactlyOnceTransactionBoundaries$/^one_broker",
		finds:   "records of |another record of its transaction",
	},
	{
		mistake: "believes an acknowledgement at a lower offset",
		// The comparison of ends after a broker hung up may find the loss first, so
		// both are left out.
		patches: []patch{
			{"sink/acked.go", "p.Record.Offset >= s.topic.acked.end(p.Record.Partition) {", "true {"},
			{"sink/ends.go", "case has < had:", "case false:"},
		},
		test:  "TestE2EUncleanElection$/^exactly_once",
		finds: "does not end|exit code",
	},
	{
		mistake: "does not compare at a start what brokers had acknowledged",
		patches: []patch{{"sink/ends.go", "case has < had:", "case false:"}},
		test:    "TestE2EBrokersLoseWhileNoConnectorRuns$/^exactly_once",
		finds:   "does not end|exit code",
	},
	{
		mistake: "takes a refusal of a time for a bad event",
		patches: []patch{{"sink/errors.go", "kerr.InvalidTimestamp:   untimely,", "kerr.InvalidTimestamp:   badRecord,"}},
		test:    "TestE2ETimesThatBrokersRefuse",
		finds:   "lost: |bad event|ended by itself|not enough",
	},
	{
		mistake: "marks rows as published that were not delivered",
		patches: []patch{{"internal/pipeline/poll/batch.go", "done, failed := w.publish(c, items)", "_, failed := w.publish(c, items)\n\tdone := len(items)"}},
		test:    "TestE2EPollMode/silent_broker",
		finds:   "lost: ",
	},
	{
		mistake: "writes without the lease",
		patches: []patch{{"internal/lease/lease.go", "c.lease.Held() && int64(time.Since(started)) < c.lease.awake.Load()", "true"}},
		test:    "TestE2ELatestRecordsStayLast$/^suspended$",
		finds:   "outdated: ",
	},
	{
		mistake: "does not wait for its predecessor's lease",
		patches: []patch{{"internal/pipeline/stream/predecessor.go", "for len(all) > 0 && time.Now().Before(until) {", "for false && time.Now().Before(until) {"}},
		test:    "TestE2ELatestRecordsStayLast$/^suspended_and_cut_off_from_the_server_and_the_walsender_ended",
		finds:   "outdated: ",
	},
	{
		mistake: "leaves its sessions' parameters to others",
		patches: []patch{{"internal/catalog/environment.go", "if len(e) == 0 {", "if len(e) >= 0 {"}},
		test:    "TestE2ESettingsOfOthers",
		finds:   "called functions of somebody else",
	},
	{
		mistake: "takes changes of other tables for progress",
		patches: []patch{{"internal/pipeline/stream/progress.go", "if is.dealt != was.dealt || is.inFlight != was.inFlight {", "if is.arrived != was.arrived || is.inFlight != was.inFlight {"}},
		test:    "TestE2EBehindAnotherTable",
		finds:   "waited for ready to be 0",
	},
	{
		mistake: "counts a topic's tail twice in verify",
		patches: []patch{{"internal/audit/topics.go", "l.next[number] = read", "l.next[number] = from\n\t\t\t_ = read"}},
		test:    "TestE2ERepairAfterALostSlot$/^exactly_once",
		finds:   "verify says ",
	},
	{
		mistake: "polls without an order",
		patches: []patch{{"internal/pipeline/poll/order.go", `return strings.Join(parts, ", ")`, `return "random()"`}},
		test:    "TestE2EPollMode/sequence/every_event_once",
		finds:   "reordered: ",
	},
	{
		mistake: "polls without lanes and holds no key back",
		patches: []patch{
			{"internal/pipeline/poll/batch.go", "case !held[r.key]:", "default:"},
			{"internal/pipeline/poll/sql.go", "WHERE pg_try_advisory_xact_lock(%d, %d + lane) LIMIT %d", "WHERE %d + %d > 0 LIMIT %d"},
		},
		test:  "TestE2EPollMode/sequence/killed",
		finds: "reordered: ",
	},
}

// TestE2EMutants shows that the tests of this package find mistakes.
func TestE2EMutants(t *testing.T) {
	if os.Getenv(mutantsEnv) == "" {
		t.Skip("runs other tests with broken programs; " + mutantsEnv + "=1 or make mutants turns it on")
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.mistake, " ", "_"), func(t *testing.T) {
			path := m.build(t)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+m.test+"$", "-test.v", "-test.count=1")
			cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, mutantsEnv) }),
				binaryEnv+"="+path)
			out, err := cmd.CombinedOutput()
			found := regexp.MustCompile(".*("+m.finds+").*").FindAllString(string(out), 2)
			if err == nil || found == nil {
				t.Fatalf("%s does not find it: %v\n%s", m.test, err, out)
			}
			t.Logf("%s: %s", m.test, strings.TrimSpace(found[0]))
		})
	}
}

// TestE2EMutantsFollowTheSource compiles the mutants' packages: TestE2EMutants runs
// on demand.
func TestE2EMutantsFollowTheSource(t *testing.T) {
	for _, m := range mutants {
		args := []string{"build", "-overlay", m.overlay(t)}
		for _, p := range m.patches {
			args = append(args, "../"+filepath.Dir(p.file))
		}
		if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", m.mistake, err, out)
		}
	}
}

// build builds the mutant and returns the path.
func (m mutant) build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cdc-outbox")
	must.OK(t, build(path, "-overlay", m.overlay(t)))
	return path
}

// overlay writes the changed files, and returns the path of the file for go build's
// -overlay.
func (m mutant) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root := must.Get(filepath.Abs(".."))(t)
	replace := map[string]string{}
	for _, p := range m.patches {
		source := filepath.Join(root, p.file)
		text := must.Get(os.ReadFile(cmp.Or(replace[source], source)))(t)
		if n := strings.Count(string(text), p.old); n != 1 {
			t.Fatalf("%s has %q %d times, want once: the mutant must follow the source", p.file, p.old, n)
		}
		replace[source] = filepath.Join(dir, strings.ReplaceAll(p.file, "/", "_"))
		must.OK(t, os.WriteFile(replace[source], []byte(strings.Replace(string(text), p.old, p.new, 1)), 0o600))
	}
	overlay := must.Get(json.Marshal(map[string]any{"Replace": replace}))(t)
	path := filepath.Join(dir, "overlay.json")
	must.OK(t, os.WriteFile(path, overlay, 0o600))
	return path
}
