package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

var (
	stdoutType = reflect.TypeFor[*Stdout]()
	tablesType = reflect.TypeFor[[]pg.Table]()
)

// kind is the shape of YAML for the field.
func (f *field) kind() yaml.Kind {
	switch f.value.Kind() {
	case reflect.Slice:
		return yaml.SequenceNode
	case reflect.Map:
		return yaml.MappingNode
	default:
		return yaml.ScalarNode
	}
}

// set converts v to the field's type and stores the value. Its errors name
// neither key nor value.
func (f *field) set(v value) error {
	if f.value.Type() == stdoutType {
		return f.setSwitch(v)
	}
	if v.kind != f.kind() {
		return f.wrongShape()
	}
	switch v.kind {
	case yaml.SequenceNode:
		return f.setList(v.list)
	case yaml.MappingNode:
		f.value.Set(reflect.ValueOf(v.pairs))
		return nil
	}
	return f.setScalar(v.scalar)
}

// setList stores text, or tables by their names.
func (f *field) setList(items []string) error {
	if f.value.Type() != tablesType {
		f.value.Set(reflect.ValueOf(items))
		return nil
	}
	tables := make([]pg.Table, len(items))
	for i, name := range items {
		var err error
		if tables[i], err = pg.ParseTable(name); err != nil {
			return failure.Configf(pg.TableRemedy, "%w", err)
		}
	}
	f.value.Set(reflect.ValueOf(tables))
	return nil
}

func (f *field) wrongShape() error {
	variable := environmentName(f.key)
	_, name := cutLast(f.key)
	switch f.kind() {
	case yaml.SequenceNode:
		return failure.Configf(fmt.Sprintf("write %s: [a, b]; the environment variable %s takes a,b", name, variable), "wants a list")
	case yaml.MappingNode:
		return failure.Configf(fmt.Sprintf("write %s: {a: x, b: y}; the environment variable %s takes a=x,b=y", name, variable), "wants names and values")
	default:
		return failure.Configf("write "+name+": value", "wants a single value")
	}
}

func (f *field) setScalar(text string) error {
	if f.value.Type() == durationType {
		d, err := time.ParseDuration(text)
		if err != nil {
			return failure.Configf("write numbers with the units ms, s, m and h: 100ms, 1m30s, 168h (a week; there is no d)", "is not a duration")
		}
		f.value.SetInt(int64(d))
		return nil
	}
	switch f.value.Kind() {
	case reflect.String:
		if strings.ContainsRune(text, 0) {
			return errors.New("contains a zero byte")
		}
		f.value.SetString(text)
	case reflect.Bool:
		switch text {
		case "true", "false":
			f.value.SetBool(text == "true")
		default:
			return failure.Configf("write true or false", "is neither true nor false")
		}
	default:
		return f.setNumber(text)
	}
	return nil
}

func (f *field) setNumber(text string) error {
	number, factor, remedy := text, int64(1), "write a whole number"
	if f.bytes {
		number, factor = cutUnit(text)
		remedy = "write a number of bytes, alone or with kB, MB, GB (powers of 1000), KiB, MiB, GiB (powers of 1024)"
	}
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return failure.Configf(remedy, "is out of range")
	case err != nil && f.bytes:
		return failure.Configf(remedy, "is not a number of bytes")
	case err != nil:
		return failure.Configf(remedy, "is not a whole number")
	case n*factor/factor != n || f.value.OverflowInt(n*factor):
		return failure.Configf(remedy, "is out of range")
	}
	f.value.SetInt(n * factor)
	return nil
}

// byteUnits are in the order of the search for a suffix: B is last because the
// others end in it.
var byteUnits = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
	{"B", 1},
}

func cutUnit(text string) (number string, factor int64) {
	for _, unit := range byteUnits {
		if number, ok := strings.CutSuffix(text, unit.suffix); ok {
			return strings.TrimSpace(number), unit.factor
		}
	}
	return text, 1
}

// setSwitch turns a section without keys on or off.
func (f *field) setSwitch(v value) error {
	on := len(v.pairs) == 0 && v.scalar != "false"
	if v.kind == yaml.SequenceNode || len(v.pairs) > 0 || !slices.Contains([]string{"", "{}", "true", "false"}, v.scalar) {
		return failure.Configf("write stdout: {}", "has no options")
	}
	f.value.SetZero()
	if on {
		f.value.Set(reflect.New(f.value.Type().Elem()))
	}
	return nil
}
