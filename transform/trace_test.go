package transform

import "testing"

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
