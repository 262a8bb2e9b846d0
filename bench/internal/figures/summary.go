package figures

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Loads are the measurements', in the order of their first.
func (r *Report) Loads() []string {
	var loads []string
	for _, m := range r.Measurements {
		if !slices.Contains(loads, m.Load) {
			loads = append(loads, m.Load)
		}
	}
	return loads
}

// Subjects are the subjects measured under the load, in the order of their first
// measurement.
func (r *Report) Subjects(load string) []string {
	var subjects []string
	for _, m := range r.Measurements {
		if m.Load == load && !slices.Contains(subjects, m.Subject) {
			subjects = append(subjects, m.Subject)
		}
	}
	return subjects
}

// Values are a metric of a subject under a load, by round, without rounds lacking the
// metric.
func (r *Report) Values(load, subject, metric string) map[int]float64 {
	values := map[int]float64{}
	for _, m := range r.Measurements {
		if v, ok := m.Values[metric]; ok && m.Load == load && m.Subject == subject {
			values[m.Round] = v
		}
	}
	return values
}

// Median is the median of all rounds; ok is false without a value.
func (r *Report) Median(load, subject, metric string) (value float64, ok bool) {
	values := r.Values(load, subject, metric)
	if len(values) == 0 {
		return 0, false
	}
	return Median(collect(values)), true
}

// Ratio is the median of a subject's values divided by another's of the same
// round: neighbours in time, so the machine's moods cancel out.
func (r *Report) Ratio(load, subject, other, metric string) (ratio float64, ok bool) {
	base := r.Values(load, other, metric)
	ratios := map[int]float64{}
	for round, v := range r.Values(load, subject, metric) {
		if b, ok := base[round]; ok && b != 0 {
			ratios[round] = v / b
		}
	}
	if len(ratios) == 0 {
		return 0, false
	}
	return Median(collect(ratios)), true
}

func collect(values map[int]float64) []float64 {
	var list []float64
	for _, v := range values {
		list = append(list, v)
	}
	return list
}

// Print writes the medians as a single table for each load, and the failures. The
// others are divided by the subject base, metric by metric; under a load without base,
// by the first.
func (r *Report) Print(w io.Writer, base string) error {
	for _, load := range r.Loads() {
		if err := r.printLoad(w, load, base); err != nil {
			return err
		}
	}
	for _, f := range r.Failures {
		fmt.Fprintf(w, "\nFAILED: %s, %s, round %d: %s\n", f.Load, f.Subject, f.Round, f.Error)
	}
	return nil
}

func (r *Report) printLoad(w io.Writer, load, base string) error {
	if subjects := r.Subjects(load); !slices.Contains(subjects, base) {
		base = subjects[0]
	}
	fmt.Fprintf(w, "\n%s (medians; in brackets, divided by %s's of the same round)\n", load, base)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	metrics := r.measured(load)
	fmt.Fprint(table, "subject\trounds")
	for _, m := range metrics {
		fmt.Fprintf(table, "\t%s, %s", m.Title, m.Unit)
	}
	fmt.Fprintln(table)
	for _, subject := range r.Subjects(load) {
		fmt.Fprintf(table, "%s\t%d", subject, len(r.Values(load, subject, metrics[0].Name)))
		for _, m := range metrics {
			fmt.Fprint(table, "\t"+r.cell(load, subject, base, m.Name))
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// measured are the metrics some subject has under the load.
func (r *Report) measured(load string) []Metric {
	var list []Metric
	for _, metric := range r.Metrics {
		for _, m := range r.Measurements {
			if _, ok := m.Values[metric.Name]; ok && m.Load == load {
				list = append(list, metric)
				break
			}
		}
	}
	return list
}

func (r *Report) cell(load, subject, base, metric string) string {
	value, ok := r.Median(load, subject, metric)
	if !ok {
		return "-"
	}
	text := Number(value)
	if ratio, ok := r.Ratio(load, subject, base, metric); ok && subject != base {
		text += fmt.Sprintf(" (%.2f)", ratio)
	}
	return text
}

// Number is a value with three significant digits, or all before the point.
func Number(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', min(digits, 4), 64)
}
