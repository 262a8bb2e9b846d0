package registry

import (
	"container/list"
	"time"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// entry is a known schema, or the last word on a missing schema.
type entry struct {
	bad   *transform.BadEvent // the fault of events that need the missing schema; nil: a known schema
	id    uint32
	codec codec // nil: the schema is only known to exist
	text  sum   // of the registry's schema; zero: of a file
	// until is when the schema is to be looked for again; zero: never.
	until time.Time
}

// cache keeps the entries used last, by name.
type cache struct {
	most   int
	byName map[string]*list.Element
	order  *list.List // of *named, the last used first
}

type named struct {
	name string
	*entry
}

func newCache(most int) *cache {
	return &cache{most: most, byName: make(map[string]*list.Element), order: list.New()}
}

// get returns nil for an unknown name.
func (c *cache) get(name []byte) *entry {
	found := c.byName[string(name)]
	if found == nil {
		return nil
	}
	c.order.MoveToFront(found)
	return found.Value.(*named).entry
}

// put drops the entry least recently used if there is no room.
func (c *cache) put(name string, e *entry) {
	if found := c.byName[name]; found != nil {
		c.order.MoveToFront(found)
		found.Value.(*named).entry = e
		return
	}
	if c.order.Len() >= c.most {
		oldest := c.order.Back()
		delete(c.byName, oldest.Value.(*named).name)
		c.order.Remove(oldest)
	}
	c.byName[name] = c.order.PushFront(&named{name, e})
}
