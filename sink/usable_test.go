package sink

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A spare asks about a claim of the transactional id. The present owner keeps the id.
func TestUsableAsksWithoutAClaim(t *testing.T) {
	id := func(op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTransactionalId, Name: "tx", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
	}
	brokers := map[string]string{"transaction.max.timeout.ms": "5000"}
	for name, tt := range map[string]struct {
		opts []kfake.Opt
		user string
		want failure.Class
	}{
		"may":                {nil, "", 0},
		"may by its right":   {[]kfake.Opt{kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "cdc", "p", id(kmsg.ACLOperationWrite))}, "cdc", 0},
		"may describe":       {[]kfake.Opt{kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "cdc", "p", id(kmsg.ACLOperationDescribe))}, "cdc", failure.Config},
		"may nothing":        {[]kfake.Opt{kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "cdc", "p")}, "cdc", failure.Config},
		"brokers allow less": {[]kfake.Opt{kfake.BrokerConfigs(brokers)}, "", failure.Config},
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, append(tt.opts, kfake.SeedTopics(1, "orders", marks))...)
			cfg := c.config()
			if tt.user != "" {
				cfg.SASL = SASL{Mechanism: "PLAIN", Username: tt.user, Password: "p"}
			}
			spare := must.Get(NewTransactions(cfg, "tx"))(t)
			defer spare.Close()
			owner := must.Get(NewTransactions(cfg, "tx"))(t)
			defer owner.Close()
			if name == "may" {
				must.OK(t, owner.Claim(t.Context()))
			}
			err := spare.Usable(t.Context())
			if (err != nil) != (tt.want != 0) || err != nil && (failure.ClassOf(err) != tt.want || failure.RemedyOf(err) == "") {
				t.Errorf("got %v of class %v", err, failure.ClassOf(err))
			}
			if name != "may" {
				return
			}
			if _, err := owner.Transact(t.Context(), entriesOf(events("orders", 1)), mark("m")); err != nil {
				t.Errorf("the owner has lost the id: %v", err)
			}
		})
	}
}

// While the owner commits one transaction after another, brokers may answer each question
// with CONCURRENT_TRANSACTIONS. The spare could claim the id all the same.
func TestUsableWhileTheOwnerCommits(t *testing.T) {
	c := startCluster(t, kfake.SeedTopics(1, marks))
	c.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = kerr.ConcurrentTransactions.Code
		return resp, nil, true
	})
	spare := must.Get(NewTransactions(c.config(), "tx"))(t)
	defer spare.Close()
	must.OK(t, spare.Usable(t.Context()))
}
