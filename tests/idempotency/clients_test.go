package idempotency_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// The loops around other clients of Kafka compile, in a module of their own: the
// clients are nobody else's dependencies.
func TestE2EOtherClientsCompile(t *testing.T) {
	run := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = "../../examples/clients"
		cmd.Env = append(os.Environ(), "GOWORK=off")
		return cmd.CombinedOutput()
	}
	if out, err := run("mod", "download"); err != nil {
		t.Skipf("the clients cannot be had: %s", out)
	}
	out, err := run("env", "CGO_ENABLED")
	if err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	packages := []string{"./kafkago"}
	if bytes.HasPrefix(out, []byte("1")) {
		packages = append(packages, "./confluent")
	} else {
		t.Log("confluent-kafka-go needs a C compiler, and is left out")
	}
	if out, err := run(append([]string{"build"}, packages...)...); err != nil {
		t.Errorf("%s", out)
	}
}
