// Package modules holds the modules of the repository to a user's view.
package modules

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

const (
	repository = "../.."
	root       = "github.com/cdc-outbox/cdc-outbox"
)

// workspace returns the directory of each module by its path, and the version
// of their release.
func workspace(t *testing.T) (dirs map[string]string, version string) {
	t.Helper()
	path := filepath.Join(repository, "go.work")
	work := must.Get(modfile.ParseWork(path, must.Get(os.ReadFile(path))(t), nil))(t)
	dirs = map[string]string{}
	for _, use := range work.Use {
		dir := filepath.Join(repository, use.Path)
		dirs[gomod(t, dir).Module.Mod.Path] = dir
	}
	for _, r := range work.Replace {
		if version != "" && version != r.Old.Version {
			t.Errorf("go.work replaces %s, others at %s", r.Old, version)
		}
		if dir, ok := dirs[r.Old.Path]; !ok || dir != filepath.Join(repository, r.New.Path) {
			t.Errorf("go.work replaces %s by %s", r.Old, r.New)
		}
		version = r.Old.Version
	}
	return dirs, version
}

func gomod(t *testing.T, dir string) *modfile.File {
	t.Helper()
	path := filepath.Join(dir, "go.mod")
	return must.Get(modfile.Parse(path, must.Get(os.ReadFile(path))(t), nil))(t)
}

// publish writes the modules as they are here to a directory Go takes for a
// proxy, and returns the URL.
func publish(t *testing.T, dirs map[string]string, version string) (url string) {
	t.Helper()
	proxy := t.TempDir()
	for path, dir := range dirs {
		at := filepath.Join(proxy, must.Get(module.EscapePath(path))(t), "@v")
		must.OK(t, os.MkdirAll(at, 0o700))
		write := func(name string, content []byte) { must.OK(t, os.WriteFile(filepath.Join(at, name), content, 0o600)) }
		write("list", []byte(version+"\n"))
		write(version+".info", must.Get(json.Marshal(map[string]string{"Version": version}))(t))
		write(version+".mod", must.Get(os.ReadFile(filepath.Join(dir, "go.mod")))(t))
		archive := must.Get(os.Create(filepath.Join(at, version+".zip")))(t)
		must.OK(t, zip.Create(archive, module.Version{Path: path, Version: version}, files(t, dir)))
		must.OK(t, archive.Close())
	}
	return "file://" + proxy
}

// file is a module's file.
type file struct{ dir, path string }

func (f file) Path() string                 { return filepath.ToSlash(f.path) }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.Join(f.dir, f.path)) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(f.dir, f.path)) }

// files are the files of the module in the directory, without other modules, and
// without files outside of the repository.
func files(t *testing.T, dir string) (all []zip.File) {
	t.Helper()
	must.OK(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		relative := must.Get(filepath.Rel(dir, path))(t)
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if err == nil || strings.HasPrefix(d.Name(), ".") || relative == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() {
			all = append(all, file{dir, relative})
		}
		return nil
	}))
	return all
}
