package exactlyonce

import (
	"bytes"
	"hash/maphash"
)

// states are the states found, numbered from 0, and found again by their keys.
type states struct {
	keys  []byte   // in turn
	ends  []uint32 // of each key
	table []int32  // open addressing: a state's number plus 1, or 0
	seed  maphash.Seed
}

func (s *states) len() int32 { return int32(len(s.ends)) }

func (s *states) key(n int32) []byte {
	if n == 0 {
		return s.keys[:s.ends[0]]
	}
	return s.keys[s.ends[n-1]:s.ends[n]]
}

func (s *states) world(n int32) world { return of(s.key(n)) }

// add returns the number of the state with the key, and whether the state is new.
func (s *states) add(key []byte) (n int32, isNew bool) {
	if 2*len(s.ends) >= len(s.table) {
		s.grow()
	}
	at := s.slot(key)
	if s.table[at] != 0 {
		return s.table[at] - 1, false
	}
	s.keys = append(s.keys, key...)
	s.ends = append(s.ends, uint32(len(s.keys)))
	s.table[at] = s.len()
	return s.len() - 1, true
}

// slot is the place of the key in the table, or the free place for the key.
func (s *states) slot(key []byte) int {
	for at := int(maphash.Bytes(s.seed, key)); ; at++ {
		at &= len(s.table) - 1
		if n := s.table[at]; n == 0 || bytes.Equal(s.key(n-1), key) {
			return at
		}
	}
}

func (s *states) grow() {
	if s.table == nil {
		s.seed = maphash.MakeSeed()
	}
	s.table = make([]int32, max(1<<10, 2*len(s.table)))
	for n := range s.len() {
		s.table[s.slot(s.key(n))] = n + 1
	}
}
