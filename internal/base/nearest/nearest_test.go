package nearest

import "testing"

func TestTo(t *testing.T) {
	verbs := []string{"run", "setup", "teardown", "check", "status", "tail", "version", "healthcheck"}
	for _, tt := range []struct{ name, want string }{
		{"run", "run"},
		{"rnu", "run"},
		{"stauts", "status"},
		{"STATUS", "status"},
		{"tear", "teardown"},
		{"health", "healthcheck"},
		{"tial", "tail"},
		{"publish", ""},
		{"zz", ""},
		{"", ""},
	} {
		if got := To(tt.name, verbs); got != tt.want {
			t.Errorf("To(%q) = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"slot", "slot", 0},
		{"slto", "slot", 1},
		{"sloot", "slot", 1},
		{"topc", "topic", 1},
		{"kitten", "sitting", 3},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := distance(tt.b, tt.a); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}
