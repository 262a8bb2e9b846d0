package transform

import (
	"strings"
	"testing"
)

func TestTraceparent(t *testing.T) {
	const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, tt := range []struct{ name, column, want string }{
		{"header", valid, valid},
		{"header in spaces", " " + valid + "\n", valid},
		{"later version", "01-" + valid[3:] + "-extra", "01-" + valid[3:] + "-extra"},
		{"properties", "#comment\n!traceparent=x\ntracestate=a\ntraceparent=" + valid, valid},
		{"properties with colon and spaces", "traceparent : " + valid + "\r\n", valid},
		{"properties with a space alone", "traceparent " + valid, valid},
		{"another property", "baggage=" + valid, ""},
		{"property without value", "traceparent", ""},
		{"empty", "", ""},
		{"version ff", "ff-" + valid[3:], ""},
		{"version 00 with more", valid + "-extra", ""},
		{"later version without separator", "01-" + valid[3:] + "x", ""},
		{"upper case", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", ""},
		{"flags that are not hex", valid[:53] + "0x", ""},
		{"zero trace id", "00-00000000000000000000000000000000-b7ad6b7169203331-01", ""},
		{"zero parent id", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", ""},
		{"too short", valid[:54], ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(traceparent([]byte(tt.column))); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTracestate(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"one":               {"rojo=00f067aa0ba902b7", true},
		"several":           {"rojo=1, congo=t61rcWkgMzE ,a/b@c-d*e_f=~", true},
		"empty members":     {"a=1,,b=2", true},
		"space in a value":  {"a=1 2", true},
		"empty":             {"", false},
		"without value":     {"a=", false},
		"without =":         {"a", false},
		"= in a value":      {"a=b=c", false},
		"upper case":        {"A=1", false},
		"key with a blank":  {"a b=1", false},
		"beginning with -":  {"-a=1", false},
		"control character": {"a=1\x01", false},
		"no ASCII":          {"a=ä", false},
		"32 members":        {strings.Repeat("a=1,", 32), true},
		"33 members":        {strings.Repeat("a=1,", 33), false},
		"long value":        {"a=" + strings.Repeat("1", 257), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := validTracestate([]byte(c.text)); got != c.want {
				t.Errorf("%q is valid: %t", c.text, got)
			}
		})
	}
	const parent = "traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if got := string(tracestate([]byte(parent + "\ntracestate=rojo=1"))); got != "rojo=1" {
		t.Errorf("of properties: %q", got)
	}
}
