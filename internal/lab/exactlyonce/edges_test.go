package exactlyonce

// edges are steps from one state to another, by their numbers.
type edges struct{ from, to []int32 }

func (e *edges) add(from, to int32) { e.from, e.to = append(e.from, from), append(e.to, to) }

// leadTo tells for each of n states whether a way leads to an end.
func (e *edges) leadTo(n int, end func(n int) bool) []bool {
	first := make([]int32, n+1) // of the edges to a state, among sorted
	for _, to := range e.to {
		first[to+1]++
	}
	for i := range n {
		first[i+1] += first[i]
	}
	sorted, next := make([]int32, len(e.from)), append([]int32(nil), first...)
	for i, to := range e.to {
		sorted[next[to]] = e.from[i]
		next[to]++
	}
	ends := make([]bool, n)
	var todo []int32
	reach := func(n int32) {
		if !ends[n] {
			ends[n] = true
			todo = append(todo, n)
		}
	}
	for i := range n {
		if end(i) {
			reach(int32(i))
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range sorted[first[n]:first[n+1]] {
			reach(from)
		}
	}
	return ends
}
