package setting

import "sync"

// Former holds the last useful contents of files, by their names, for the whole process: a
// client made during a replacement needs the former contents, too. Several goroutines may use
// the same Former.
type Former[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]V
}

// Or returns the value of read, or, after an error, the former value if any.
func (f *Former[K, V]) Or(key K, read func() (V, error)) (V, error) {
	value, err := read()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		if last, ok := f.values[key]; ok {
			return last, nil
		}
		return value, err
	}
	if f.values == nil {
		f.values = make(map[K]V)
	}
	f.values[key] = value
	return value, nil
}
