package debezium

import (
	"os"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

const document = "../../docs/debezium-options.md"

const introduction = `# Debezium's options

The verdicts of the [import](how-to/debezium.md) on the options of Debezium 3.7, of Connect and of the producer, written from its tables. Values may change a verdict, and the report says so.

- **same**: the same effect, by the key or by itself
- **differs**: a counterpart with a difference
- **none**: no counterpart
`

// row is a line of the table: options with the same verdict.
type row struct {
	names     []string
	kind      Kind
	key, note string
}

func table(title string, rows []row) string {
	var b strings.Builder
	b.WriteString("\n## " + title + "\n\n| Debezium | cdc-outbox |\n|---|---|\n")
	for _, r := range rows {
		verdict := string(r.kind)
		if r.key != "" {
			verdict += " `" + r.key + "`"
		}
		if r.note != "" {
			verdict += ": " + r.note
		}
		b.WriteString("| `" + strings.Join(r.names, "`, `") + "` | " + verdict + " |\n")
	}
	return b.String()
}

// page is the page of all options.
func page() string {
	var router, connector, server, producer, prefix []row
	for _, r := range routerRules {
		router = append(router, row{[]string{r.name}, r.kind, r.key, r.note})
	}
	for _, r := range rules {
		all := row{kind: r.kind, key: r.key, note: r.note}
		to := &connector
		for _, name := range r.names {
			if own, ok := strings.CutPrefix(name, "server."); ok {
				to, name = &server, strings.Replace("debezium."+own, "debezium.quarkus", "quarkus", 1)
			}
			all.names = append(all.names, name)
		}
		*to = append(*to, all)
	}
	for _, r := range producerRules {
		producer = append(producer, row{r.names, r.kind, r.key, r.note})
	}
	producer = append(producer,
		row{[]string{"security.protocol"}, Same, "sink.kafka.tls.enabled", ""},
		row{[]string{"sasl.mechanism", "sasl.jaas.config"}, Same, "sink.kafka.sasl", "PLAIN, SCRAM, OAUTHBEARER with client credentials, AWS_MSK_IAM"},
		row{[]string{"ssl.truststore.…", "ssl.keystore.…"}, Differs, "sink.kafka.tls", "PEM files"},
	)
	for _, p := range prefixes {
		if !strings.HasPrefix(p.prefix, "server.") && p.prefix != producerPrefix {
			prefix = append(prefix, row{[]string{p.prefix + "…"}, p.kind, p.key, p.note})
		}
	}
	return introduction +
		table("The router: transforms.NAME.…", router) +
		table("The connector, and Connect", connector) +
		table("Groups of options", prefix) +
		table("The producer: producer.override.…, or producer.… of the worker", producer) +
		table("Debezium Server", server)
}

// The page in docs has what the importer says.
func TestThePageOfAllOptions(t *testing.T) {
	if *update {
		must.OK(t, os.WriteFile(document, []byte(page()), 0o644))
	}
	if string(must.Get(os.ReadFile(document))(t)) != page() {
		t.Errorf("go test ./internal/debezium -run TestThePageOfAllOptions -update writes %s anew", document)
	}
}

// No option is in two rules: the second would never be asked.
func TestEachOptionHasOneRule(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rules {
		for _, name := range r.names {
			if seen[name] {
				t.Errorf("%s has two rules", name)
			}
			seen[name] = true
		}
	}
}
