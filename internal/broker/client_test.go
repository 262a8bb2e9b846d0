package broker

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// All other code of the connector's takes its clients from here, and asks here.
func TestNoOtherPackageMakesClientsOrAsks(t *testing.T) {
	made := regexp.MustCompile(`\b(kgo|kadm)\.NewClient\(|NewPtr(Metadata|DescribeConfigs|FindCoordinator|ApiVersions|DescribeQuorum)Request`)
	for _, dir := range []string{"checkpoint", "sink", "internal/admin", "internal/kafkalog", "internal/mute", "internal/pipeline", "internal/wiring"} {
		must.OK(t, filepath.WalkDir(filepath.Join("../..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if made.Match(text) {
				t.Errorf("%s makes a client, or a question: %s", path, made.Find(text))
			}
			return err
		}))
	}
}
