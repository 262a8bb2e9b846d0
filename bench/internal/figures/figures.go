// Package figures holds a benchmark's measurements, written to a file as JSON and
// printed as a table.
//
// Non-goals: measuring, judging.
package figures

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Report is all of a single run.
type Report struct {
	Benchmark string            `json:"benchmark"`
	Began     time.Time         `json:"began"`
	Seconds   float64           `json:"seconds"`  // duration of the run
	Machine   string            `json:"machine"`  // processors and system
	Versions  map[string]string `json:"versions"` // of each program
	Settings  map[string]string `json:"settings"` // the flags, with their defaults
	// Configurations are how each subject was set up.
	Configurations map[string]map[string]string `json:"configurations,omitempty"`
	// Metrics are in the order of columns.
	Metrics      []Metric      `json:"metrics"`
	Measurements []Measurement `json:"measurements"`
	Failures     []Failure     `json:"failures,omitempty"`
}

// Metric explains a name in Values.
type Metric struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
	// Better is "more" or "less".
	Better string `json:"better"`
}

// Measurement is of a single subject under a single load in a single round.
type Measurement struct {
	Load    string             `json:"load"`    // "steady, 1000 events/s"
	Subject string             `json:"subject"` // "Debezium, warm"
	Round   int                `json:"round"`   // from 1
	Values  map[string]float64 `json:"values"`
}

// Failure is a failed measurement.
type Failure struct {
	Load    string `json:"load"`
	Subject string `json:"subject"`
	Round   int    `json:"round"`
	Error   string `json:"error"` // with the last lines the subject printed
}

// Write writes the report as JSON to the file.
func (r *Report) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Read reads a file of Write.
func Read(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}
