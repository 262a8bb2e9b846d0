package figures

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"
)

// New is the report of a benchmark beginning now, with the flags.
func New(benchmark string, metrics []Metric, versions map[string]string) *Report {
	r := &Report{
		Benchmark:      benchmark,
		Began:          time.Now().UTC().Truncate(time.Second),
		Machine:        fmt.Sprintf("%d processors, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH),
		Versions:       versions,
		Settings:       map[string]string{},
		Configurations: map[string]map[string]string{},
		Metrics:        metrics,
	}
	r.Versions["Go"] = runtime.Version()
	flag.VisitAll(func(f *flag.Flag) { r.Settings[f.Name] = f.Value.String() })
	return r
}

// Turn is a subject's in a round.
type Turn struct {
	Subject string
	Take    func(ctx context.Context) (map[string]float64, error)
}

// Play has the subjects take turns for all rounds, and notes the measurements. The
// first of a round is the last of the next, so none has the better place. A failure
// is no error as long as ctx lasts.
func (r *Report) Play(ctx context.Context, w io.Writer, load string, rounds int, turns []Turn) error {
	for round := range rounds {
		for n := range turns {
			now := turns[(n+round)%len(turns)]
			values, failed := now.Take(ctx)
			if err := r.Note(ctx, w, Measurement{load, now.Subject, round + 1, values}, failed); err != nil {
				return err
			}
		}
	}
	return nil
}

// Note keeps and prints a measurement, or the failure.
func (r *Report) Note(ctx context.Context, w io.Writer, m Measurement, failed error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	result := r.describe(m.Values)
	if failed != nil {
		result = "FAILED: " + failed.Error()
		r.Failures = append(r.Failures, Failure{m.Load, m.Subject, m.Round, failed.Error()})
	} else {
		r.Measurements = append(r.Measurements, m)
	}
	fmt.Fprintf(w, "%s, round %d, %s: %s\n", m.Load, m.Round, m.Subject, result)
	return nil
}

// describe is the values in a single line.
func (r *Report) describe(values map[string]float64) string {
	var list []string
	for _, m := range r.Metrics {
		if v, ok := values[m.Name]; ok {
			list = append(list, fmt.Sprintf("%s %s %s", m.Title, Number(v), m.Unit))
		}
	}
	return strings.Join(list, "; ")
}

// Finish prints the report and, if path is not empty, writes the file. A failed
// measurement is an error.
func (r *Report) Finish(w io.Writer, base, path string) error {
	r.Seconds = time.Since(r.Began).Round(time.Second).Seconds()
	if err := r.Print(w, base); err != nil {
		return err
	}
	if path != "" {
		if err := r.Write(path); err != nil {
			return err
		}
	}
	if n := len(r.Failures); n > 0 {
		return fmt.Errorf("%d measurements failed", n)
	}
	return nil
}
