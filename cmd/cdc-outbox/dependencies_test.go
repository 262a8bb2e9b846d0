package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// modules are what the connector is linked with. Each new one makes the program
// larger, its build longer, and is something to keep up to date: it is here
// because somebody wanted that.
var modules = []string{
	"github.com/cdc-outbox/cdc-outbox",
	"github.com/cdc-outbox/cdc-outbox/internal/base",
	"github.com/cdc-outbox/cdc-outbox/outbox",

	// PostgreSQL
	"github.com/jackc/pgerrcode",
	"github.com/jackc/pgio",
	"github.com/jackc/pgerrcode",
	"github.com/jackc/pglogrepl",
	"github.com/jackc/pgpassfile",
	"github.com/jackc/pgservicefile",
	"github.com/jackc/pgx/v5",
	"golang.org/x/text",

	// Kafka
	"github.com/klauspost/compress",
	"github.com/pierrec/lz4/v4",
	"github.com/twmb/franz-go",
	"github.com/twmb/franz-go/pkg/kadm",
	"github.com/twmb/franz-go/pkg/kmsg",
	"golang.org/x/oauth2",

	// Configuration, log, metrics
	"github.com/beorn7/perks",
	"github.com/cespare/xxhash/v2",
	"github.com/munnerz/goautoneg",
	"github.com/prometheus/client_golang",
	"github.com/prometheus/client_model",
	"github.com/prometheus/common",
	"github.com/prometheus/procfs",
	"go.uber.org/multierr",
	"go.uber.org/zap",
	"go.yaml.in/yaml/v3",
	"golang.org/x/sync",
	"golang.org/x/sys",
	"google.golang.org/protobuf",

	// demo: a broker, and PostgreSQL's programs where none are installed
	"github.com/fergusstrange/embedded-postgres",
	"github.com/google/uuid",
	"github.com/lib/pq",
	"github.com/twmb/franz-go/pkg/kfake",
	"github.com/xi2/xz",
}

func TestLinkedModulesAreWanted(t *testing.T) {
	for _, module := range depend(t, "{{with .Module}}{{.Path}}{{end}}") {
		if !slices.Contains(modules, module) {
			t.Errorf("the program links module %s", module)
		}
	}
}

// text/template and html/template call methods by name: with one of them the
// linker keeps every exported method of the program, which then is a fifth
// larger.
func TestNoTemplateIsLinked(t *testing.T) {
	for _, pkg := range depend(t, "{{.ImportPath}}") {
		if pkg == "text/template" {
			t.Errorf("the program links %s", pkg)
		}
	}
}

// depend prints something of each package that the program is linked from.
func depend(t *testing.T, format string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, ".").Output()
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
