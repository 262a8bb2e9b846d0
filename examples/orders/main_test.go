package main

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
		want options
		err  string
	}{
		{
			name: "defaults",
			args: []string{"-url", "postgres://localhost"},
			want: options{url: "postgres://localhost", rate: 1},
		}, {
			name: "environment",
			env:  map[string]string{"ORDERS_DATABASE_URL": "postgres://db", "ORDERS_RATE": "2.5", "ORDERS_ROLLBACK_EVERY": "7"},
			want: options{url: "postgres://db", rate: 2.5, rollbackEvery: 7},
		}, {
			name: "flags override the environment",
			env:  map[string]string{"ORDERS_DATABASE_URL": "postgres://db", "ORDERS_RATE": "2"},
			args: []string{"-rate", "3", "-events", "9", "-url", "postgres://other"},
			want: options{url: "postgres://other", rate: 3, events: 9},
		},
		{name: "no database", err: "no database"},
		{name: "rate of zero", args: []string{"-url", "x", "-rate", "0"}, err: "rate 0"},
		{name: "rate that is no number", args: []string{"-url", "x", "-rate", "NaN"}, err: "rate NaN"},
		{name: "bad variable", env: map[string]string{"ORDERS_RATE": "fast"}, err: "ORDERS_RATE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parse(tt.args, func(key string) string { return tt.env[key] }, io.Discard)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if err == nil && got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestRunPlacesOrders(t *testing.T) {
	o := options{url: pgtest.Shared(t).NewDatabase(t), rate: 500, rollbackEvery: 3, events: 4}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`event=\S+`).ReplaceAllString(out.String(), "event=…")
	want := `committed   OrderPlaced  order=1 event=… Ada, espresso machine, 249.00
committed   OrderPlaced  order=2 event=… Björn, teapot, 34.50
rolled back OrderPlaced  order=3 event=… Chiyo, matcha whisk (茶筅), 18.90
committed   OrderPlaced  order=4 event=… Dmitri, café filters, 4.20
committed   OrderPaid    order=1 event=… Ada, espresso machine, 249.00
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRunStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }) // after the first line
	if err := run(ctx, options{url: pgtest.Shared(t).NewDatabase(t), rate: 500}, out); err != nil {
		t.Fatal(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
