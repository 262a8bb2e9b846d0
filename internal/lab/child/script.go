package child

import (
	"fmt"
	"os"
	"path/filepath"
)

// Script returns the path of one of the module's scripts: that of the name in
// the directory scripts in, or above, the working directory.
func Script(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, "scripts", name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("scripts/%s is in no directory above this one: run this within the repository", name)
		}
		dir = parent
	}
}
