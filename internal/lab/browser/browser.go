// Package browser lets tests look at pages with a real browser: a headless
// Chromium or Chrome, which scripts/chromium.sh finds or installs. Where there is
// none, the tests are skipped.
//
// Non-goals: other browsers; anything but tests.
package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// patience bounds each action on a tab.
const patience = 5 * time.Minute

// find returns the browser's path.
var find = sync.OnceValues(func() (string, error) {
	script, err := child.Script("chromium.sh")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(script)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
})

// Tab is a tab of a separate browser. Tab is used by a single goroutine.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

// Open starts a browser ending with the test, with an empty tab.
func Open(t testing.TB) *Tab {
	t.Helper()
	path, err := find()
	if err != nil {
		t.Skipf("no browser: %v", err)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.Flag("disable-features", "Translate,OptimizationHints,MediaRouter"), chromedp.Flag("no-proxy-server", true),
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(time.Minute))
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // Chromium's own does not run as root
	}
	limited, stop := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	allocated, release := chromedp.NewExecAllocator(limited, opts...)
	ctx, closeTab := chromedp.NewContext(allocated, chromedp.WithErrorf(func(string, ...any) {})) // of events that chromedp does not know
	tab := &Tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until the browser is gone
		closeTab()
		release()
		stop()
	})
	chromedp.ListenTarget(ctx, tab.hear)
	tab.Do(runtime.Enable(), log.Enable())
	return tab
}

// hear notes what a developer would see in the console.
func (tab *Tab) hear(event any) {
	var text string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			text = fmt.Sprint("console: ", string(e.Args[0].Value), e.Args[0].Description)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
			text = fmt.Sprint(e.Entry.Source, ": ", e.Entry.Text, " ", e.Entry.URL)
		}
	}
	if text != "" {
		tab.mu.Lock()
		defer tab.mu.Unlock()
		tab.complaints = append(tab.complaints, text)
	}
}

// Complaints returns the errors and warnings of the console so far.
func (tab *Tab) Complaints() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return append([]string(nil), tab.complaints...)
}

// Do runs actions, or fails the test.
func (tab *Tab) Do(actions ...chromedp.Action) {
	tab.t.Helper()
	if err := chromedp.Run(tab.ctx, actions...); err != nil {
		tab.t.Fatalf("browser: %v (console: %q)", err, tab.Complaints())
	}
}

// Eval returns the value of a JavaScript expression.
func Eval[T any](tab *Tab, expression string) (value T) {
	tab.t.Helper()
	tab.Do(chromedp.Evaluate(expression, &value))
	return value
}

// Text returns the text of the first element the selector finds, as a reader
// sees it; "" where there is none.
func (tab *Tab) Text(selector string) string {
	tab.t.Helper()
	return Eval[string](tab, fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector))
}
