package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the picture in testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPictureIsThatOfTheResults compares the drawing with a picture seen by a person.
func TestPictureIsThatOfTheResults(t *testing.T) {
	const golden = "testdata/results.svg"
	path := filepath.Join(t.TempDir(), "picture.svg")
	if err := plot("testdata/results.json", path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the picture of testdata/results.json is not %s (-update writes it):\n%s", golden, got)
	}
}

// TestPictureIsXML reads the picture of a subject whose name needs XML's escapes.
func TestPictureIsXML(t *testing.T) {
	text, err := os.ReadFile("testdata/results.svg")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "a &lt;b&gt; &amp; c") {
		t.Error("the name with < is not there, escaped")
	}
	decoder := xml.NewDecoder(strings.NewReader(string(text)))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestPlotWantsItsFiles(t *testing.T) {
	for _, in := range []string{"", "testdata/none.json", "testdata/results.svg"} {
		out := filepath.Join(t.TempDir(), "picture.svg")
		if err := plot(in, out); err == nil {
			t.Errorf("a picture of %q", in)
		}
		if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("there is a picture of %q: %v", in, err)
		}
	}
}
