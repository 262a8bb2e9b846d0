// Package nearest finds the valid name a mistyped one was meant to be, for
// error messages about verbs, flags, configuration keys and values.
package nearest

import "strings"

// To returns the candidate with the fewest edits from name, or "" when none is
// so near that it is worth suggesting: a third of name's letters, at least one,
// may differ. A longer candidate that begins with name also counts. Upper and
// lower case are the same. Of equally near candidates the first wins.
func To(name string, candidates []string) string {
	name = strings.ToLower(name)
	best, bound := "", max(1, len(name)/3)+1
	for _, candidate := range candidates {
		if d := distance(name, strings.ToLower(candidate)); d < bound {
			best, bound = candidate, d
		}
	}
	if best != "" || len(name) < 3 {
		return best
	}
	for _, candidate := range candidates {
		if strings.HasPrefix(strings.ToLower(candidate), name) {
			return candidate
		}
	}
	return ""
}

// distance is the optimal string alignment distance in bytes: insertions,
// deletions, substitutions and swaps of neighbours each count one.
func distance(a, b string) int {
	before, prev := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(b)]
}
