package idempotency_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cdc-outbox/cdc-outbox/"

// Dependencies of the clients of Kafka, OpenTelemetry's API and Prometheus.
var (
	kafka      = []string{"github.com/twmb/franz-go/", "github.com/klauspost/compress", "github.com/pierrec/lz4/v4"}
	otel       = []string{"github.com/cespare/xxhash/v2", "go.opentelemetry.io/otel"}
	prometheus = []string{
		"github.com/prometheus/", "github.com/beorn7/perks/", "github.com/cespare/xxhash/v2", "github.com/munnerz/goautoneg",
		"golang.org/x/sys/", "google.golang.org/protobuf/",
	}
)

// core are the modules for each package of the library.
var core = []string{
	module + "idempotency", module + "idempotency/storage", module + "idempotency/deadletter", module + "idempotency/claimcheck",
	module + "idempotency/internal/", module + "internal/base/",
}

// dependencies are the possible imports of a package of the two libraries, beside
// the standard library and the core: modules, or packages of the same module, by
// the beginnings of their paths. A new package needs a line here.
var dependencies = map[string][]string{
	"idempotency":                  nil,
	"idempotency/storage":          nil,
	"idempotency/deadletter":       nil,
	"idempotency/storetest":        nil,
	"idempotency/guard":            nil,
	"idempotency/claimcheck":       nil,
	"idempotency/claimcheck/table": {module + "idempotency/claimcheck"},
	"idempotency/claimcheck/s3": {
		module + "idempotency/claimcheck", "github.com/minio/", "github.com/cespare/xxhash/v2", "github.com/dustin/go-humanize", "github.com/google/uuid",
		"github.com/klauspost/", "github.com/philhofer/fwd", "github.com/rs/xid", "github.com/tinylib/msgp/", "github.com/zeebo/xxh3",
		"go.yaml.in/yaml/v3", "golang.org/x/", "gopkg.in/ini.v1",
	},
	"idempotency/memory":   {"github.com/bits-and-blooms/", "github.com/hashicorp/golang-lru/v2/"},
	"idempotency/redis":    {"github.com/redis/go-redis/v9", "github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys/"},
	"idempotency/postgres": {"github.com/jackc/", "golang.org/x/sync/", "golang.org/x/text/"},
	"idempotency/dynamodb": {"github.com/aws/aws-sdk-go-v2/", "github.com/aws/smithy-go", "golang.org/x/sync/"},
	"idempotency/metrics":  slices.Concat(prometheus, kafka, []string{module + "idempotency/consumer"}),
	"idempotency/tracing":  slices.Concat(kafka, otel, []string{module + "idempotency/consumer", "go.opentelemetry.io/auto/sdk", "github.com/go-logr/"}),
	"idempotency/consumer": kafka,
	"outbox":               {"github.com/google/uuid", module + "internal/base/"},
	"outbox/tracing":       otel,
}

// A user of the core or a single store gets the store's client and no other's,
// and a writer of events no driver; nobody gets OpenTelemetry's SDK.
func TestImportingAPackagePullsInItsOwnClientOnly(t *testing.T) {
	for _, pkg := range list(t, module+"idempotency/...", module+"outbox/...") {
		name := strings.TrimPrefix(pkg, module)
		if strings.HasPrefix(name, "idempotency/cmd/") || strings.Contains(name, "/internal/") {
			continue // imported by no user
		}
		t.Run(name, func(t *testing.T) {
			allowed, ok := dependencies[name]
			if !ok {
				t.Fatal("say in the table above what it may pull in")
			}
			for _, dep := range list(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg) {
				if dep == pkg || strings.HasPrefix(name, "idempotency") && slices.ContainsFunc(core, func(own string) bool {
					return dep == own || strings.HasSuffix(own, "/") && strings.HasPrefix(dep, own)
				}) {
					continue
				}
				if !slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(dep, prefix) }) || strings.Contains(dep, "/otel/sdk") {
					t.Errorf("pulls in %s", dep)
				}
			}
		})
	}
}

// list runs go list.
func list(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	return strings.Fields(string(out))
}
