package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

// patience bounds every wait for a certain event.
const patience = 2 * time.Minute

// Environment variables; see the package's documentation.
const (
	binaryEnv  = "CDC_OUTBOX_E2E_BINARY"
	killsEnv   = "CDC_OUTBOX_E2E_KILLS"
	seedEnv    = "CDC_OUTBOX_SEED"
	soakEnv    = "CDC_OUTBOX_SOAK"
	mutantsEnv = "CDC_OUTBOX_MUTANTS"
	// campaignEnv is the number of kills, campaignLimitEnv how long disturbances
	// may begin, campaignConfigEnv more of the connector's configuration. With
	// campaignWholeEnv, transactions are seen as a whole.
	campaignEnv       = "CDC_OUTBOX_CAMPAIGN"
	campaignLimitEnv  = "CDC_OUTBOX_CAMPAIGN_LIMIT"
	campaignConfigEnv = "CDC_OUTBOX_CAMPAIGN_CONFIG"
	campaignWholeEnv  = "CDC_OUTBOX_CAMPAIGN_WHOLE"
	// fleetEnv is the number of disturbances of a large fleet, fleetDeliveryEnv the
	// delivery of all pipelines, in place of both.
	fleetEnv         = "CDC_OUTBOX_CAMPAIGN_FLEET"
	fleetDeliveryEnv = "CDC_OUTBOX_CAMPAIGN_DELIVERY"
	// shadowEnv is how long a comparison with Debezium lasts, with kills.
	shadowEnv = "CDC_OUTBOX_SHADOW"
	// registryEnv is the URL of a schema registry, in place of a stand-in.
	registryEnv = "CDC_OUTBOX_REGISTRY_URL"
	// tokensEnv is how long connectors live on tokens of a minute.
	tokensEnv = "CDC_OUTBOX_TOKENS"
)

// binary is the path of the program under test.
var binary = os.Getenv(binaryEnv)

func TestMain(m *testing.M) {
	// Tests wait for programs more than they compute; -parallel comes later, and counts.
	if err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	pgtest.Main(redistest.With(building{m}))
}

// building runs tests with a program built for them.
type building struct{ *testing.M }

func (b building) Run() int {
	if binary != "" {
		return b.M.Run()
	}
	dir, err := os.MkdirTemp("", "cdc-outbox-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "cdc-outbox")
	if err := build(binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return b.M.Run()
}

// releaseTags leave out the parts of libraries the Makefile names.
const releaseTags = "nethttpomithttp2,nopgxregisterdefaulttypes"

// build builds the program as released, but with symbols. The compiler's output is
// the same as for the image, tested too.
func build(path string, flags ...string) error {
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-tags", releaseTags, "-trimpath", "-buildvcs=false", "-o", path, "../cmd/cdc-outbox")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return nil
}

// seed is where the random choices of the test begin.
func seed(t testing.TB) uint64 {
	t.Helper()
	s := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Logf("%s=%d", seedEnv, s)
	return s
}

// number is an environment variable's value; unset, the given number.
func number(t testing.TB, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}
