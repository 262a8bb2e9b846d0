package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
)

// connectTimeout bounds a worker's start, and each request to a worker.
const connectTimeout = 2 * time.Minute

// properties are a configuration of Kafka Connect.
type properties map[string]string

// with is a copy with more.
func (p properties) with(more properties) properties {
	all := maps.Clone(p)
	maps.Copy(all, more)
	return all
}

func (p properties) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s=%s\n", name, strings.ReplaceAll(p[name], `\`, `\\`))
	}
	return b.String()
}

// worker is a process of Kafka Connect standalone.
type worker struct {
	*rig.Process
	url string
}

// startWorker starts a worker with the plugins of a directory beside Debezium's, and the
// connectors, if any, and returns at once.
func startWorker(dir, heap, plugins string, worked properties, connectors ...properties) (*worker, error) {
	script, err := child.Script("debezium.sh")
	if err != nil {
		return nil, err
	}
	dir, err = os.MkdirTemp(dir, "connect-")
	if err != nil {
		return nil, err
	}
	addr, err := freeport.TakeAddress()
	if err != nil {
		return nil, err
	}
	w := &worker{url: "http://" + addr}
	worked = worked.with(properties{
		"listeners":                    w.url,
		"offset.storage.file.filename": filepath.Join(dir, "offsets"),
	})
	files := []string{filepath.Join(dir, "worker.properties")}
	for n := range connectors {
		files = append(files, filepath.Join(dir, fmt.Sprintf("connector-%d.properties", n)))
	}
	for n, p := range append([]properties{worked}, connectors...) {
		if err := os.WriteFile(files[n], []byte(p.String()), 0o600); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(script, append([]string{"run"}, files...)...)
	cmd.Env = append(os.Environ(), "CONNECT_JVM="+heap+" "+rig.JVMOptions, "CONNECT_PLUGINS="+plugins)
	w.Process, err = rig.Start("Kafka Connect", cmd)
	return w, err
}

// ready waits until the worker answers.
func (w *worker) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err := await.Ready(ctx, w.Exited(), func(ctx context.Context) error {
		return w.ask(ctx, http.MethodGet, "/connectors", nil, nil)
	})
	if err != nil {
		err = fmt.Errorf("wait for Kafka Connect's REST: %w", err)
	}
	return w.Explain(err)
}

// put creates the connector.
func (w *worker) put(ctx context.Context, name string, p properties) error {
	return w.ask(ctx, http.MethodPut, "/connectors/"+name+"/config", p, nil)
}

// remove stops and forgets the connector.
func (w *worker) remove(name string) error {
	return w.ask(context.Background(), http.MethodDelete, "/connectors/"+name, nil, nil)
}

// failed is why a connector or a task has failed, or nil.
func (w *worker) failed(ctx context.Context) error {
	if err := w.Alive(ctx); err != nil {
		return err
	}
	type state struct{ State, Trace string }
	var connectors map[string]struct {
		Status struct {
			Connector state
			Tasks     []state
		}
	}
	err := w.ask(ctx, http.MethodGet, "/connectors?expand=status", nil, &connectors)
	if errors.Is(err, errNotFound) {
		return nil // the worker listens before it has resources
	}
	if err != nil {
		return err
	}
	for name, c := range connectors {
		for _, s := range append(c.Status.Tasks, c.Status.Connector) {
			if s.State == "FAILED" {
				return fmt.Errorf("connector %s has failed: %s", name, rig.WithoutFrames(s.Trace))
			}
		}
	}
	return nil
}

// Wrong kinds of answers.
var (
	errNotFound = errors.New("not found")
	errRefused  = errors.New("Kafka Connect does not listen")
)

// ask makes a request; body and answer are JSON, or nil.
func (w *worker) ask(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return errors.Join(errRefused, err)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s %s: %w", method, path, errNotFound)
	case resp.StatusCode >= 300:
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	case answer != nil:
		return json.Unmarshal(text, answer)
	}
	return nil
}
