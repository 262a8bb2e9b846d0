package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// documents are the pages with commands and configurations for users, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"../../README.md", "../../docs/*.md", "../../docs/*/*.md"} {
		for _, path := range must.Get(filepath.Glob(pattern))(t) {
			texts[path] = string(must.Get(os.ReadFile(path))(t))
		}
	}
	return texts
}

func TestDocumentedConfigurationsLoad(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	found := 0
	for name, text := range documents(t) {
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			found++
			environ := []string{"CDC_OUTBOX_LOG_LEVEL=error", "CDC_PASSWORD=secret", "REGISTRY_PASSWORD=secret"}
			if !strings.Contains(m[1], "url:") {
				environ = append(environ, "CDC_OUTBOX_SOURCE_URL=postgres:///app")
			}
			if got := execute(t.Context(), environ, "run", "-c", writeFile(t, m[1])); got.code != 0 {
				t.Errorf("%s: %s\n%s", name, got.stderr, m[1])
			}
		}
	}
	if found < 4 {
		t.Errorf("only %d examples found", found)
	}
}

// TestDocumentedCommandsExist parses the commands that documents show, and runs
// none.
func TestDocumentedCommandsExist(t *testing.T) {
	var (
		shown       = regexp.MustCompile("(?m)^ *(?:bin/)?cdc-outbox (.*)$|`(?:bin/)?cdc-outbox ([^`\n]+)`|'cdc-outbox ([^'\n]+)'")
		comment     = regexp.MustCompile(`\s(#.*|&$)`)
		placeholder = regexp.MustCompile(`<[^>]*>`)
	)
	found := 0
	for name, text := range documents(t) {
		for _, m := range shown.FindAllStringSubmatch(text, -1) {
			found++
			command := m[1] + m[2] + m[3]
			args := strings.Fields(placeholder.ReplaceAllString(comment.ReplaceAllString(command, ""), "1"))
			if err := parses(args); err != nil {
				t.Errorf("%s: cdc-outbox %s: %v", name, command, err)
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d commands found", found)
	}
}

// parses returns the faults of a command line, short of running it.
func parses(args []string) error {
	_, err := new(program).line().Parse(args)
	return err
}
