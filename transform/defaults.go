package transform

import (
	"regexp"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// generated are Debezium's stand-ins for a computed DEFAULT, by type. Other types have
// no default there, except for enums.
var generated = map[string]string{
	"bool": "f", "bpchar": "", "varchar": "", "text": "", "numeric": "0.0", "float4": "0", "float8": "0",
	"int2": "0", "int4": "0", "int8": "0", "json": "{}", "jsonb": "{}", "xml": "",
	"uuid": "00000000-0000-0000-0000-000000000000", "date": "1970-01-01", "time": "00:00:00",
	"timestamp": "1970-01-01 00:00:00", "timestamptz": "1970-01-01 00:00:00+00", "interval": "00:00:00",
}

// numbers are the types whose default must be a plain number.
var numbers = map[string]bool{"numeric": true, "float4": true, "float8": true, "int2": true, "int4": true, "int8": true}

var (
	quotedLiteral = regexp.MustCompile(`'([^']*(?:''[^']*)*)'`)
	functionCall  = regexp.MustCompile(`^[(]?[A-Za-z0-9_.]+\((?:.+(?:, ?.+)*)?\)`)
	plainNumber   = regexp.MustCompile(`^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$`)
)

var currentTimes = []string{"current_timestamp", "current_time", "current_date", "localtime", "localtimestamp"}

// standard returns the text of Debezium's value for NULL in a column with a DEFAULT,
// also the default in schemas; nil for none.
func standard(c pg.Column) []byte {
	d := c.Details
	switch {
	case d.Default == "":
		return nil
	case d.Kind == 'e' && d.TypeName == c.TypeName: // and no domain
		return enumDefault(d)
	}
	substitute, ok := generated[d.TypeName]
	if !ok {
		return nil
	}
	text := d.Default
	switch {
	case functionCall.MatchString(text), containsFold(currentTimes, text):
		text = substitute
	case strings.Contains(text, "'"):
		literal := quotedLiteral.FindStringSubmatch(text)
		if literal == nil {
			return nil
		}
		text = strings.ReplaceAll(literal[1], "''", "'")
	case strings.HasPrefix(text, "NULL::"):
		return nil
	}
	switch {
	case numbers[d.TypeName] && !plainNumber.MatchString(text):
		return nil
	case d.TypeName == "bool" && strings.EqualFold(text, "true"):
		text = "t"
	case d.TypeName == "bool":
		text = "f"
	}
	return []byte(text)
}

// enumDefault reads 'label'::name.
func enumDefault(d pg.ColumnDetails) []byte {
	at := strings.LastIndex(d.Default, "::")
	if at < 2 || d.Default[0] != '\'' || d.Default[at-1] != '\'' {
		return nil
	}
	name := d.Default[at+len("::"):]
	name = strings.Trim(name[strings.LastIndexByte(name, '.')+1:], `"`)
	if name != d.TypeName {
		return nil
	}
	return []byte(d.Default[1 : at-1])
}

func containsFold(list []string, text string) bool {
	for _, item := range list {
		if strings.EqualFold(item, text) {
			return true
		}
	}
	return false
}
