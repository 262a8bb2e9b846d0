package sink

// absent remembers the topics that were found missing, so that the next event
// of such a topic need not wait for several questions again. The names come
// from the events' data and may be anything, so the memory is bounded: it holds
// the last absentTopics to 2·absentTopics different names. A forgotten one is
// asked for as patiently as at first.
type absent struct {
	young, old map[string]bool
}

const absentTopics = 512

// has tells whether the topic was found missing.
func (a *absent) has(name string) bool {
	if !a.young[name] && a.old[name] {
		a.add(name)
	}
	return a.young[name]
}

// add remembers the topic.
func (a *absent) add(name string) {
	if !a.young[name] && len(a.young) == absentTopics {
		a.old, a.young = a.young, nil
	}
	if a.young == nil {
		a.young = make(map[string]bool)
	}
	a.young[name] = true
}

// remove forgets the topic: it exists.
func (a *absent) remove(name string) {
	delete(a.young, name)
	delete(a.old, name)
}
