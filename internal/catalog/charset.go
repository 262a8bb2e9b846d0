package catalog

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// convertible are the encodings with an equivalent in UTF-8 for each character,
// converted by the server. SQL_ASCII says nothing of its bytes, see
// clientEncoding.
var convertible = []string{"UTF8", "SQL_ASCII", "LATIN1", "LATIN2", "LATIN4", "LATIN5", "LATIN6", "LATIN7", "LATIN8", "LATIN9", "LATIN10",
	"ISO_8859_5", "KOI8R", "KOI8U", "WIN866", "WIN1256"}

// Characters beyond ASCII as the server may store them (wchar.c), in hexadecimal:
// rows of them, with the prefix p.
const (
	oneByte  = `SELECT '', array_agg(lpad(to_hex(a), 2, '0')) FROM generate_series(128, 255) a`
	twoBytes = `SELECT p, array_agg(p || to_hex(a) || to_hex(b)) FROM (VALUES ('')) v(p), generate_series(161, 254) a, generate_series(161, 254) b GROUP BY p, a`
	// Katakana behind 8E, and JIS X 0212 behind 8F.
	japanese = `SELECT p, array_agg(p || to_hex(a) || to_hex(b)) FROM (VALUES (''), ('8f')) v(p), generate_series(161, 254) a, generate_series(161, 254) b GROUP BY p, a` +
		` UNION ALL SELECT '8e', array_agg('8e' || to_hex(a)) FROM generate_series(161, 223) a`
	// Planes of CNS 11643.
	taiwanese = `SELECT p, array_agg(p || to_hex(a) || to_hex(b)) FROM (VALUES (''), ('8ea1'), ('8ea2'), ('8ea3'), ('8ea4'), ('8ea5'), ('8ea6'), ('8ea7')) v(p),` +
		` generate_series(161, 254) a, generate_series(161, 254) b GROUP BY p, a`
)

// gaps are the encodings with characters without an equivalent.
var gaps = map[string]string{
	"LATIN3": oneByte, "ISO_8859_6": oneByte, "ISO_8859_7": oneByte, "ISO_8859_8": oneByte,
	"WIN874": oneByte, "WIN1250": oneByte, "WIN1251": oneByte, "WIN1252": oneByte, "WIN1253": oneByte, "WIN1254": oneByte,
	"WIN1255": oneByte, "WIN1257": oneByte, "WIN1258": oneByte,
	"EUC_CN": twoBytes, "EUC_KR": twoBytes, "EUC_JP": japanese, "EUC_JIS_2004": japanese, "EUC_TW": taiwanese,
}

const remedyEncoding = "move the data to a database in UTF8 (pg_dump --encoding=UTF8)"

// charsets are those asked for by this process, by name. PostgreSQL's conversions
// are the same on each server.
var charsets sync.Map

// ReadCharset returns the conversion of the database's text: nil for a conversion
// by the server. An inconvertible encoding is an error of class failure.Config.
func ReadCharset(ctx context.Context, conn *pgx.Conn) (*pg.Charset, error) {
	name := conn.PgConn().ParameterStatus("server_encoding")
	if slices.Contains(convertible, name) {
		return nil, nil
	}
	if known, ok := charsets.Load(name); ok {
		return known.(*pg.Charset), nil
	}
	codes, ok := gaps[name]
	if !ok {
		return nil, failure.Configf(remedyEncoding, "the database's encoding, %s, is not supported", name)
	}
	// Large encodings take a second or more.
	patient := Patient(ctx, conn.Config().ConnString(), conn.PgConn(), nil)
	text, err := queryText(ctx, conn.PgConn(), conversionSQL(codes))
	patient()
	if err != nil {
		return nil, fmt.Errorf("ask for the conversion of %s: %w", name, err)
	}
	c, err := parseConversion(name, text)
	if err == nil {
		charsets.Store(name, c)
	}
	return c, err
}

// conversionSQL lists the characters with their equivalent: a row of them at
// once or, after a gap, each by itself. Functions report such a gap by an error
// only.
func conversionSQL(rows string) string {
	return `
DO $conversion$
DECLARE
    shape text;
    row   text[];
    code  text;
    list  text[] := '{}';
BEGIN
    FOR shape, row IN ` + rows + ` LOOP
        BEGIN
            list := list || (array_to_string(row, ' ') || '=' || encode(convert(decode(array_to_string(row, '0a'), 'hex'), getdatabaseencoding(), 'UTF8'), 'hex'));
            CONTINUE;
        EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
        END;
        FOREACH code IN ARRAY row LOOP
            BEGIN
                list := list || (code || '=' || encode(convert(decode(code, 'hex'), getdatabaseencoding(), 'UTF8'), 'hex'));
            EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
            END;
        END LOOP;
    END LOOP;
    PERFORM set_config('cdc_outbox.conversion', array_to_string(list, ','), true);
END $conversion$;
SELECT current_setting('cdc_outbox.conversion')`
}

func parseConversion(name, text string) (*pg.Charset, error) {
	forms := map[string][]byte{}
	for list := range strings.SplitSeq(text, ",") {
		codes, all, _ := strings.Cut(list, "=")
		converted, err := hex.DecodeString(all)
		to := bytes.Split(converted, []byte{'\n'})
		from := strings.Fields(codes)
		if err != nil || len(from) != len(to) {
			return nil, fmt.Errorf("conversion of %s: unexpected answer %q", name, list)
		}
		for i, code := range from {
			b, err := hex.DecodeString(code)
			if err != nil {
				return nil, fmt.Errorf("conversion of %s: %w", name, err)
			}
			forms[string(b)] = to[i]
		}
	}
	return pg.NewCharset(name, forms), nil
}

// SendAsStored is the statement for text in the charset; "" for nil.
func SendAsStored(c *pg.Charset, local bool) string {
	if c == nil {
		return ""
	}
	scope := "SESSION"
	if local {
		scope = "LOCAL"
	}
	return "SET " + scope + " client_encoding TO " + c.Name + "; "
}
