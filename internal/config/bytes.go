package config

import "reflect"

// ParseBytes reads a number of bytes, as values of the configuration are written. The error
// has the remedy.
func ParseBytes(text string) (n int64, err error) {
	f := field{bytes: true, value: reflect.ValueOf(&n).Elem()}
	err = f.setNumber(text)
	return n, err
}
