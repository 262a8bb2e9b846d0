package wal

import (
	"bytes"
	"encoding/binary"
)

// cursor reads big-endian fields. Past the end, reads return zeros and are
// noted, so a message is checked once, at the end.
type cursor struct {
	buf   []byte
	short bool
}

func (c *cursor) bytes(n int) []byte {
	if n < 0 || n > len(c.buf) {
		c.short, c.buf = true, nil
		return nil
	}
	b := c.buf[:n:n]
	c.buf = c.buf[n:]
	return b
}

func (c *cursor) byte() byte {
	if len(c.buf) < 1 {
		c.short = true
		return 0
	}
	b := c.buf[0]
	c.buf = c.buf[1:]
	return b
}

func (c *cursor) uint16() uint16 {
	if b := c.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) uint32() uint32 {
	if b := c.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) uint64() uint64 {
	if b := c.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// string reads up to the terminating zero byte.
func (c *cursor) string() []byte {
	i := bytes.IndexByte(c.buf, 0)
	if i < 0 {
		c.short, c.buf = true, nil
		return nil
	}
	s := c.buf[:i]
	c.buf = c.buf[i+1:]
	return s
}
