package registry

import (
	"time"
)

// entry is a known schema.
type entry struct {
	id    uint32
	codec codec // nil: the schema is only known to exist
	text  sum   // of the registry's schema; zero: of a file
	// until is when the schema is to be looked for again; zero: never.
	until time.Time
	used  uint64
}

// cache keeps the entries used last, by name.
type cache struct {
	most    int
	entries map[string]*entry
	uses    uint64
}

func newCache(most int) *cache { return &cache{most: most, entries: make(map[string]*entry)} }

// get returns nil for an unknown name.
func (c *cache) get(name []byte) *entry {
	e := c.entries[string(name)]
	if e != nil {
		c.uses++
		e.used = c.uses
	}
	return e
}

// put drops the entry least recently used if there is no room.
func (c *cache) put(name string, e *entry) {
	if _, there := c.entries[name]; !there && len(c.entries) >= c.most {
		oldest, least := "", ^uint64(0)
		for other, o := range c.entries {
			if o.used < least {
				oldest, least = other, o.used
			}
		}
		delete(c.entries, oldest)
	}
	c.uses++
	e.used = c.uses
	c.entries[name] = e
}
