package idempotency_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"testing"
)

// mostLines is how long a loop around another client may be.
const mostLines = 20

func TestLoopsAroundOtherClientsAreShort(t *testing.T) {
	for _, client := range []string{"kafkago", "confluent"} {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, "../../examples/clients/"+client+"/consume.go", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				lines += set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1
			}
		}
		if lines == 0 || lines > mostLines {
			t.Errorf("%s has %d lines, want 1 to %d", client, lines, mostLines)
		}
	}
}

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
