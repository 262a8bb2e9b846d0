package poll

// inOrder returns the rows that may be published now, in order: without those
// that another session holds, and without the later ones of their keys, which it
// returns too.
func inOrder(rows []row) (free []row, keys []string) {
	var held map[string]bool
	for _, r := range rows {
		switch {
		case r.rel == "":
			if held == nil {
				held = map[string]bool{}
			}
			if !held[r.key] {
				keys = append(keys, r.key)
			}
			held[r.key] = true
		case !held[r.key]:
			free = append(free, r)
		}
	}
	return free, keys
}
