package sink

import (
	"strconv"
	"testing"
)

func TestAbsentRemembersTheLastNames(t *testing.T) {
	var a absent
	for n := range 100 * absentTopics {
		name := strconv.Itoa(n)
		if a.has(name) {
			t.Fatalf("%s was never added", name)
		}
		a.add(name)
		if !a.has(name) || !a.has("used all the time") && n > 0 {
			t.Fatalf("forgot %s or the one that is used all the time", name)
		}
		a.add("used all the time")
		if size := len(a.young) + len(a.old); size > 2*absentTopics {
			t.Fatalf("remembers %d names", size)
		}
	}
	last := strconv.Itoa(100*absentTopics - absentTopics/2)
	if !a.has(last) {
		t.Errorf("forgot %s", last)
	}
	a.remove(last)
	if a.has(last) {
		t.Errorf("remembers %s, which exists", last)
	}
}
