package dynamodb_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Whoever imports the package gets the AWS SDK's client, and no other store's.
func TestImportsDynamoDBsClientOnly(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{
		"github.com/cdc-outbox/cdc-outbox/", "github.com/aws/aws-sdk-go-v2/", "github.com/aws/smithy-go", "golang.org/x/sync/",
	}
	for _, path := range strings.Fields(string(out)) {
		known := false
		for _, a := range allowed {
			known = known || strings.HasPrefix(path, a)
		}
		if !known {
			t.Errorf("imports %s", path)
		}
	}
}
