package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Password is the password of all Logins.
const Password = "pw"

// superuser is the login for clients made here.
const superuser = "root"

// Logins makes the broker's clients log in, by SASL without TLS, and turns the authorizer
// on. Each user may log in with PLAIN and SCRAM-SHA-256, at Apache Kafka also with OAUTHBEARER
// and an unsigned token of the subject, and has the rights given by Allow. Clients made here
// may do all.
func Logins(users ...string) Option { return func(o *options) { o.users = users } }

// secured are Apache Kafka's settings for the users. The only listener keeps the name
// of a listener without logins.
func secured(users []string) map[string]string {
	module := "org.apache.kafka.common.security."
	logins := fmt.Sprintf("%splain.PlainLoginModule required username=%q password=%q", module, superuser, Password)
	for _, user := range slices.Concat(users, []string{superuser}) {
		logins += fmt.Sprintf(" user_%s=%q", user, Password)
	}
	return map[string]string{
		"listener.security.protocol.map":                         "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":                             "PLAINTEXT",
		"sasl.mechanism.inter.broker.protocol":                   "PLAIN",
		"sasl.enabled.mechanisms":                                "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
		"listener.name.plaintext.plain.sasl.jaas.config":         logins + ";",
		"listener.name.plaintext.scram-sha-256.sasl.jaas.config": module + "scram.ScramLoginModule required;",
		"listener.name.plaintext.oauthbearer.sasl.jaas.config":   module + `oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`,
		"authorizer.class.name":                                  "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                                            "User:" + superuser + ";User:ANONYMOUS", // the controller's clients
	}
}

// fakeLogins is secured for kfake.
func fakeLogins(users []string) []kfake.Opt {
	if users == nil {
		return nil
	}
	opts := []kfake.Opt{kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", superuser, Password)}
	for _, user := range users {
		opts = append(opts, kfake.User("PLAIN", user, Password))
	}
	return opts
}

// login is how this package's clients log in.
func login(users []string) []kgo.Opt {
	if users == nil {
		return nil
	}
	return []kgo.Opt{kgo.SASL(plain.Auth{User: superuser, Pass: Password}.AsMechanism())}
}

// Allow gives a user of Logins rights to resources, and returns once the broker knows them:
// Apache Kafka's controller answers earlier.
func (b *Broker) Allow(t testing.TB, user string, resources *kadm.ACLBuilder, operations ...kadm.ACLOperation) {
	t.Helper()
	client := b.Client(t)
	defer client.Close()
	testserver.Do(t, "give rights to "+user, func(ctx context.Context) error {
		resources.Allow(user).AllowHosts("*").Operations(operations...).PrefixUser()
		given, err := kadm.NewClient(client).CreateACLs(ctx, resources)
		for _, g := range given {
			err = errors.Join(err, g.Err)
		}
		if err != nil {
			return err
		}
		return await.Ready(ctx, nil, func(ctx context.Context) error {
			known, err := kadm.NewClient(client).DescribeACLs(ctx, resources)
			for _, k := range known {
				if err = errors.Join(err, k.Err); len(k.Described) == 0 {
					err = errors.Join(err, errors.New("the broker does not know all of the rights yet"))
				}
			}
			return err
		})
	})
}

// addScram lets the users log in with SCRAM-SHA-256, too: brokers keep such logins themselves.
func (b *Broker) addScram(ctx context.Context) error {
	client, err := b.newClient()
	if err != nil {
		return err
	}
	defer client.Close()
	var logins []kadm.UpsertSCRAM
	for _, user := range b.users {
		logins = append(logins, kadm.UpsertSCRAM{User: user, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: Password})
	}
	altered, err := kadm.NewClient(client).AlterUserSCRAMs(ctx, nil, logins)
	if err != nil {
		return err
	}
	return altered.Error()
}
