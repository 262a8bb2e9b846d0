package checker

// Repetition is a record the topic had already.
type Repetition struct {
	Event  string // the id
	Before Record // the event's last record before
	Again  Record
}

// Repetitions returns the records that came again, in the order read.
func Repetitions(records []Record) []Repetition {
	last := map[string]int{}
	var all []Repetition
	for i := range records {
		id := records[i].id()
		if before, ok := last[id]; ok {
			all = append(all, Repetition{id, records[before], records[i]})
		}
		last[id] = i
	}
	return all
}
