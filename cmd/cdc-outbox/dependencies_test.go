package main

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// modules are those the released program links, each with the reason. Each
// further module makes the program larger and its build longer, and must be
// kept up to date. The demo's have a program of their own, cmd/cdc-outbox-demo.
var modules = map[string]string{
	"github.com/cdc-outbox/cdc-outbox":               "the connector",
	"github.com/cdc-outbox/cdc-outbox/internal/base": "shared with the libraries: failures, SQLSTATEs, valid JSON",
	"github.com/cdc-outbox/cdc-outbox/outbox":        "the table's SQL, for setup and retention",
	"github.com/google/uuid":                         "outbox: event ids",

	"github.com/jackc/pgx/v5":        "PostgreSQL: connections and queries",
	"github.com/jackc/pgpassfile":    "pgx: ~/.pgpass",
	"github.com/jackc/pgservicefile": "pgx: service files",
	"golang.org/x/text":              "pgx: passwords as SCRAM compares them; jsonschema: messages",
	"github.com/jackc/pgerrcode":     "names of SQLSTATEs",
	"github.com/jackc/pglogrepl":     "LSNs, and the commands of the replication protocol",
	"github.com/jackc/pgio":          "pglogrepl: numbers in messages",

	"github.com/twmb/franz-go":          "Kafka: producer and consumer, SASL",
	"github.com/twmb/franz-go/pkg/kadm": "Kafka: topics, configurations, ACLs, transactions",
	"github.com/twmb/franz-go/pkg/kmsg": "Kafka: the protocol's messages",
	"github.com/twmb/franz-go/pkg/sr":   "the schema registry: its API",

	"github.com/bufbuild/protocompile":         "the schema registry: texts of Protobuf schemas",
	"github.com/santhosh-tekuri/jsonschema/v6": "the schema registry: JSON Schema",

	"github.com/klauspost/compress": "franz-go: gzip, snappy, zstd; promhttp: zstd",
	"github.com/pierrec/lz4/v4":     "franz-go: lz4",
	"golang.org/x/oauth2":           "tokens for SASL OAUTHBEARER, and of Azure and Google",

	"cloud.google.com/go/compute/metadata": "Google's metadata server",
	"github.com/aws/aws-sdk-go-v2":         "signatures for Amazon's tokens",
	"github.com/aws/smithy-go":             "aws-sdk-go-v2: its hooks",

	"github.com/minio/minio-go/v7":  "the claim check: storage with Amazon's S3 protocol",
	"github.com/dustin/go-humanize": "minio-go: sizes",
	"github.com/klauspost/cpuid/v2": "minio-go: the processor's instructions for hashes",
	"github.com/klauspost/crc32":    "minio-go: checksums",
	"github.com/minio/crc64nvme":    "minio-go: checksums",
	"github.com/minio/md5-simd":     "minio-go: the hash that buckets with a lock require",
	"github.com/philhofer/fwd":      "minio-go: msgp's reader",
	"github.com/rs/xid":             "minio-go: ids of uploads",
	"github.com/tinylib/msgp":       "minio-go: its own formats",
	"github.com/zeebo/xxh3":         "minio-go: checksums",
	"golang.org/x/crypto":           "minio-go: key derivation for encryption",
	"golang.org/x/net":              "minio-go: public suffixes",
	"gopkg.in/ini.v1":               "minio-go: the file of Amazon's credentials",

	"go.yaml.in/yaml/v3":               "the configuration's file",
	"github.com/magiconair/properties": "import debezium: Java's properties",

	"go.opentelemetry.io/proto/slim/otlp": "spans: the messages of OTLP",

	"go.uber.org/zap":      "the log",
	"go.uber.org/multierr": "zap: several errors",
	"golang.org/x/sync":    "errgroup: goroutines that end together",
	"golang.org/x/sys":     "system calls: sockets, clocks, files",

	"github.com/prometheus/client_golang": "metrics",
	"github.com/prometheus/client_model":  "client_golang: what it gathers",
	"github.com/prometheus/common":        "client_golang: the text of /metrics",
	"github.com/prometheus/procfs":        "client_golang: metrics of the process",
	"github.com/beorn7/perks":             "client_golang: summaries",
	"github.com/cespare/xxhash/v2":        "client_golang: hashes of labels",
	"github.com/munnerz/goautoneg":        "client_golang: the format that a scraper accepts",
	"google.golang.org/protobuf":          "the schema registry: Protobuf; client_golang: its model's messages",
}

func TestLinkedModulesAreWanted(t *testing.T) {
	linked := depend(t, "{{with .Module}}{{.Path}}{{end}}")
	for _, module := range linked {
		if modules[module] == "" {
			t.Errorf("the program links module %s", module)
		}
	}
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		if !slices.Contains(linked, module) {
			t.Errorf("the program links no module %s: take it from the list", module)
		}
	}
}

// The packages text/template and html/template call methods by name: with one
// of them the linker keeps every exported method of the program, which then is
// a fifth larger.
func TestNoTemplateIsLinked(t *testing.T) {
	for _, pkg := range depend(t, "{{.ImportPath}}") {
		if pkg == "text/template" {
			t.Errorf("the program links %s", pkg)
		}
	}
}

// depend prints something of each package the released program is linked from.
func depend(t *testing.T, format string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, ".")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	words := strings.Fields(string(out))
	slices.Sort(words)
	words = slices.Compact(words)
	if len(words) < 20 {
		t.Fatalf("only %d found", len(words))
	}
	return words
}
