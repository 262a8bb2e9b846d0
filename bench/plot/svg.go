package main

import (
	"bytes"
	"fmt"
	"html"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
)

// Sizes, in pixels.
const (
	width   = 960
	margin  = 24
	columns = 3
	gutter  = 24
	bar     = 16 // the height
	line    = 22 // from bar to bar
	heading = 44 // above a load's panels
	title   = 26 // above a panel's bars
	names   = 148
	numbers = 52 // right of the longest bar
)

const panelWidth = (width - 2*margin - (columns-1)*gutter) / columns

// ours has a separate colour.
const ours = "cdc-outbox"

// draw is the picture: a section for each load with a panel for each metric, with bars
// for the medians.
func draw(r *figures.Report) []byte {
	var body bytes.Buffer
	y := margin
	for _, load := range r.Loads() {
		y = section(&body, r, load, y)
	}
	versions := ""
	for _, name := range []string{"PostgreSQL", "Apache Kafka", "kfake", "Debezium"} {
		if v := r.Versions[name]; v != "" {
			if name != "Debezium" { // the version has the name already
				v = name + " " + v
			}
			versions += v + "; "
		}
	}
	y += 16
	text(&body, margin, y, "note", "start", versions+r.Machine+"; "+r.Began.Format("2006-01-02"))

	var svg bytes.Buffer
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<style>
text { font: 12px sans-serif; fill: #222 }
.load { font-size: 15px; font-weight: bold }
.metric { font-weight: bold }
.note { fill: #666 }
rect { fill: #9aa5b1 }
rect.ours { fill: #1f77b4 }
rect.page { fill: #fff }
</style>
<rect class="page" width="100%%" height="100%%"/>
`, width, y+margin, width, y+margin)
	svg.Write(body.Bytes())
	svg.WriteString("</svg>\n")
	return svg.Bytes()
}

// section draws a load's panels from y on, and returns the end.
func section(w *bytes.Buffer, r *figures.Report, load string, y int) int {
	text(w, margin, y+16, "load", "start", load)
	y += heading
	subjects := r.Subjects(load)
	height := title + line*len(subjects) + gutter
	drawn := 0
	for _, metric := range r.Metrics {
		if !measured(r, load, metric) {
			continue
		}
		if drawn > 0 && drawn%columns == 0 {
			y += height
		}
		panel(w, r, load, metric, margin+drawn%columns*(panelWidth+gutter), y)
		drawn++
	}
	return y + height
}

func measured(r *figures.Report, load string, metric figures.Metric) bool {
	for _, subject := range r.Subjects(load) {
		if _, ok := r.Median(load, subject, metric.Name); ok {
			return true
		}
	}
	return false
}

// panel draws a metric's bars.
func panel(w *bytes.Buffer, r *figures.Report, load string, metric figures.Metric, x, y int) {
	text(w, x, y, "metric", "start", fmt.Sprintf("%s, %s (%s is better)", metric.Title, metric.Unit, metric.Better))
	largest := 0.0
	for _, subject := range r.Subjects(load) {
		v, _ := r.Median(load, subject, metric.Name)
		largest = max(largest, v)
	}
	for n, subject := range r.Subjects(load) {
		top := y + title - bar + n*line
		text(w, x+names-6, top+bar-4, "", "end", subject)
		v, ok := r.Median(load, subject, metric.Name)
		if !ok {
			text(w, x+names, top+bar-4, "note", "start", "–")
			continue
		}
		length := 1.0
		if largest > 0 {
			length = max(1, v/largest*(panelWidth-names-numbers))
		}
		class := ""
		if strings.HasPrefix(subject, ours) {
			class = ` class="ours"`
		}
		fmt.Fprintf(w, "<rect%s x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n", class, x+names, top, length, bar)
		text(w, x+names+int(length)+4, top+bar-4, "", "start", figures.Number(v))
	}
}

// text writes at the baseline; anchor is start or end.
func text(w *bytes.Buffer, x, y int, class, anchor, s string) {
	if class != "" {
		class = fmt.Sprintf(" class=%q", class)
	}
	if anchor != "start" {
		class += fmt.Sprintf(" text-anchor=%q", anchor)
	}
	fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, y, class, html.EscapeString(s))
}
