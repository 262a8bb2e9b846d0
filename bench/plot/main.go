// Command plot makes a picture of a benchmark's results: bars for each load and
// metric, from the JSON written by the benchmark with -json. The same JSON gives the
// same picture, byte by byte.
//
//	go run ./bench/plot -json FILE -o FILE.svg
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
)

func main() {
	in := flag.String("json", "", "the results")
	out := flag.String("o", "", "the picture, SVG")
	flag.Parse()
	if err := plot(*in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func plot(in, out string) error {
	if in == "" || out == "" {
		return errors.New("want -json and -o")
	}
	report, err := figures.Read(in)
	if err != nil {
		return err
	}
	return os.WriteFile(out, draw(report), 0o644)
}
