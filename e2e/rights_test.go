package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Each verb, run by a user without any right in Kafka, names a missing right at a time.
// With the rights given so, a repetition does all of the work: nothing is left half done,
// and no event comes twice.
func TestE2EVerbsNameTheMissingRights(t *testing.T) {
	t.Parallel()
	verbs := []struct {
		args []string
		code int // at the end
		says string
	}{
		{[]string{"verify"}, 3, "4 missing"},
		{[]string{"repair"}, 0, "4 missing"},
		{[]string{"repair", "--publish"}, 0, "dead-lettered 0, skipped 0"},
		{[]string{"replay", "--name", "again", "--topic", topicOf("payment"), "--to", "copies"}, 0, "to publish in topic copies: 4"},
		{[]string{"replay", "--name", "again", "--topic", topicOf("payment"), "--to", "copies", "--publish"}, 0, "published 4,"},
		{[]string{"replay", "--name", "more", "--from-topic", topicOf("payment"), "--until", "0s", "--to", "copies", "--publish"}, 0, "published 4,"},
		{[]string{"snapshot", "--where", "aggregatetype = 'order'", "--name", "all", "--to", "copies", "--publish"}, 0, "published 5,"},
		{[]string{"dead-letters", "list"}, 0, "record_too_large"},
		{[]string{"dead-letters", "show", "--partition", "0", "--offset", "0"}, 0, "record_too_large"},
		{[]string{"dead-letters", "redrive", "--all"}, 0, "1 to publish"},
		{[]string{"dead-letters", "redrive", "--all", "--publish"}, 0, "published 1"},
	}
	for name, o := range map[string]options{"at_least_once": {}, "exactly_once": {exactlyOnce: true}} {
		t.Run(name, func(t *testing.T) {
			users := []string{"cdc"}
			for n := range verbs {
				users = append(users, fmt.Sprint("verb", n))
			}
			o.unread, o.direct, o.broker = true, true, []kafkatest.Option{kafkatest.Logins(users...)}
			o = o.refusing(50_000)
			o.kafka += "\n    sasl: {mechanism: PLAIN, username: cdc, password: " + kafkatest.Password + "}"
			w := newWorld(t, o)
			w.broker.CreateTopic(t, "copies", 1, nil)
			for _, all := range []*kadm.ACLBuilder{
				kadm.NewACLs().Topics("outbox.", "cdc-outbox.").ResourcePatternType(kadm.ACLPatternPrefixed),
				kadm.NewACLs().TransactionalIDs("cdc-outbox/").ResourcePatternType(kadm.ACLPatternPrefixed),
			} {
				w.broker.Allow(t, "cdc", all, kadm.OpAll)
			}
			place := func(aggregate, key, payload string) {
				w.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), '` + aggregate + `', '` + key + `', 'Placed', ` + payload + `)`)
			}
			c := w.start()
			place("order", "a", "'1'")
			place("order", "a", "repeat('x', 60000)")
			place("order", "b", "'2'")
			place("payment", "a", "'3'")
			place("payment", "b", "'4'")
			w.wantExit(0, w.config, "wait", "--now")
			c.stop()
			w.dropSlot(w.slot)
			place("order", "a", "'5'")
			place("order", "b", "'6'")
			place("payment", "a", "'7'")
			place("payment", "b", "'8'")
			w.fitting(fit)
			for n, v := range verbs {
				w.withRights(users[n+1], v.args, v.code, v.says)
			}
			for topic, want := range map[string]int{topicOf("order"): 5, topicOf("payment"): 4, "copies": 13} {
				if n := len(w.broker.Consume(t, []string{topic}, kafkatest.Count(want))); n != want {
					t.Errorf("%s has %d records, want %d", topic, n, want)
				}
			}
		})
	}
}

// withRights runs a verb as a user of its own, and gives each right that the verb names,
// until the verb ends with the exit code.
func (w *world) withRights(user string, verb []string, code int, says string) {
	w.t.Helper()
	text := strings.Replace(string(must.Get(os.ReadFile(w.config))(w.t)), "username: cdc,", "username: "+user+",", 1)
	config := filepath.Join(w.t.TempDir(), "cdc-outbox.yaml")
	must.OK(w.t, os.WriteFile(config, []byte(text), 0o600))
	given := map[string]bool{}
	for {
		cmd := exec.CommandContext(w.t.Context(), binary, append(verb, "-c", config)...)
		cmd.Env = environment(w.t)
		out, _ := cmd.CombinedOutput()
		right := aclCommand.FindString(string(out))
		got := cmd.ProcessState.ExitCode()
		switch {
		case got == code && right == "":
			w.t.Logf("%s: %d rights", strings.Join(verb, " "), len(given))
			must.Contain(w.t, string(out), says)
			return
		case got != 2 && got != code || right == "" || given[right]: // a list may be less certain for lack of a right
			w.t.Fatalf("%s with %d rights: exit code %d\n%s", strings.Join(verb, " "), len(given), got, out)
		}
		given[right] = true
		w.t.Logf("%s: %s", strings.Join(verb, " "), right)
		w.gives(user, right)
	}
}

// aclCommand is a command for a right.
var aclCommand = regexp.MustCompile(`kafka-acls\.sh .*--(cluster|(topic|transactional-id) '[^']*')`)

// gives gives a user the right of a command.
func (w *world) gives(user, command string) {
	w.t.Helper()
	var operations []kadm.ACLOperation
	for _, op := range regexp.MustCompile(`--operation (\w+)`).FindAllStringSubmatch(command, -1) {
		operations = append(operations, must.Get(kmsg.ParseACLOperation(op[1]))(w.t))
	}
	resources := kadm.NewACLs().Clusters()
	if of := regexp.MustCompile(`--topic '([^']*)'`).FindStringSubmatch(command); of != nil {
		resources = kadm.NewACLs().Topics(of[1])
	}
	if of := regexp.MustCompile(`--transactional-id '([^']*)'`).FindStringSubmatch(command); of != nil {
		resources = kadm.NewACLs().TransactionalIDs(of[1])
	}
	w.broker.Allow(w.t, user, resources, operations...)
}
