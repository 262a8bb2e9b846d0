package broker

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// All other code of the connector's takes its clients from here, and asks here.
func TestNoOtherPackageMakesClientsOrAsks(t *testing.T) {
	made := regexp.MustCompile(`pkg/kadm"|\bkgo\.NewClient\(|\bkmsg\.New(Ptr)?\w+Request\(|\.sh --bootstrap-server`)
	for _, dir := range []string{"cmd", "checkpoint", "sink", "internal"} {
		must.OK(t, filepath.WalkDir(filepath.Join("../..", dir), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (path == "../../internal/broker" || path == "../../internal/lab"):
				return fs.SkipDir
			case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			text, err := os.ReadFile(path)
			if made.Match(text) {
				t.Errorf("%s makes a client, a question or a command line: %s", path, made.Find(text))
			}
			return err
		}))
	}
}
