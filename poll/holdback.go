package poll

// inOrder returns the rows that may be published now, in order: without those
// that another session holds, and without the later ones of their keys.
func inOrder(rows []row) []row {
	var held map[string]bool
	free := rows[:0]
	for _, r := range rows {
		switch {
		case r.rel == "":
			if held == nil {
				held = map[string]bool{}
			}
			held[r.key] = true
		case !held[r.key]:
			free = append(free, r)
		}
	}
	return free
}
