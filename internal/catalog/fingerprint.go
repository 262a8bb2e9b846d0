package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// noMember stands in a fingerprint for a table that is not published.
const noMember = "none"

// Fingerprint returns a text by which SamePublication tells whether rows of the
// tables may have bypassed the stream between two looks: the publication was
// created anew, or a table or schema was taken out of it and put back, or a
// table was replaced by another of its name. It says nothing about tables that
// are not asked about. (Switching publish from insert to something else and
// back leaves no trace in the catalogs, nor does making a table unlogged and
// logged again.)
//
// The form is oid:table=membership|membership,table=… and so on.
func (p Publication) Fingerprint(tables []pg.Table) string {
	parts := make([]string, 0, len(tables))
	for _, t := range tables {
		members := p.memberships(t)
		if len(members) == 0 {
			members = []string{noMember}
		}
		parts = append(parts, t.String()+"="+strings.Join(members, "|"))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d:%s", p.OID, strings.Join(parts, ","))
}

// NoTables reports whether a fingerprint has no tables, or no publication:
// messages do not pass through one, so they miss nothing meanwhile.
func NoTables(fingerprint string) bool {
	return fingerprint == "" || strings.HasSuffix(fingerprint, ":")
}

// memberships names each reason why a table is published. If a reason ends and
// comes back, the catalogs give it another OID, so its name differs.
func (p Publication) memberships(t pg.Table) (members []string) {
	switch {
	case p.AllTables && p.excepts(t):
		return nil
	case p.AllTables:
		return []string{"all"}
	}
	if m, ok := p.table(t); ok {
		members = append(members, fmt.Sprintf("%d/%d", m.RelID, m.MemberOID))
	}
	for _, s := range p.Schemas {
		if s.Name == t.Schema {
			members = append(members, fmt.Sprintf("schema/%d", s.MemberOID))
		}
	}
	return members
}

// SamePublication reports whether each table of the earlier of two fingerprints
// was published without a break since: the publication is the same, and at
// least one membership of the table is in both. Others may have come or gone,
// and so may tables that were not read before. Fingerprints with a single
// membership are understood.
func SamePublication(before, now string) bool {
	if before == now || NoTables(before) {
		return true
	}
	oidBefore, tablesBefore := splitFingerprint(before)
	oidNow, tablesNow := splitFingerprint(now)
	if oidBefore != oidNow {
		return false
	}
	for name, members := range tablesBefore {
		lasted := slices.ContainsFunc(members, func(m string) bool {
			return m != noMember && slices.Contains(tablesNow[name], m)
		})
		if !lasted {
			return false
		}
	}
	return true
}

// OtherPublication reports whether the later of two fingerprints is that of
// another publication, and of all tables of the earlier one.
func OtherPublication(before, now string) bool {
	if NoTables(before) || NoTables(now) {
		return false
	}
	oid, tables := splitFingerprint(before)
	other, still := splitFingerprint(now)
	maps.DeleteFunc(tables, func(name string, _ []string) bool { _, has := still[name]; return has })
	return oid != other && len(tables) == 0
}

// FingerprintHas reports whether a fingerprint is also of the table.
func FingerprintHas(fingerprint string, t pg.Table) bool {
	_, tables := splitFingerprint(fingerprint)
	_, has := tables[t.String()]
	return has
}

// LeftOut are the tables of an earlier fingerprint that are missing in the
// present one, of the same publication.
func LeftOut(before, now string) []string {
	oid, tables := splitFingerprint(before)
	same, still := splitFingerprint(now)
	if oid != same {
		return nil
	}
	maps.DeleteFunc(tables, func(name string, _ []string) bool { _, has := still[name]; return has })
	return slices.Sorted(maps.Keys(tables))
}

// RenameTables returns a fingerprint with the present names of tables by their
// earlier ones.
func RenameTables(fingerprint string, names map[string]string) string {
	if NoTables(fingerprint) {
		return fingerprint
	}
	oid, tables := splitFingerprint(fingerprint)
	parts := make([]string, 0, len(tables))
	for name, members := range tables {
		parts = append(parts, cmp.Or(names[name], name)+"="+strings.Join(members, "|"))
	}
	slices.Sort(parts)
	return oid + ":" + strings.Join(parts, ",")
}

// splitFingerprint returns the parts of a fingerprint: the publication's OID and
// the memberships of each table.
func splitFingerprint(s string) (oid string, tables map[string][]string) {
	oid, rest, _ := strings.Cut(s, ":")
	tables = make(map[string][]string)
	for part := range pg.SplitNames(rest) {
		cut := strings.LastIndexByte(part, '=') // memberships have none
		if cut < 0 {
			cut = len(part)
			part += "="
		}
		tables[part[:cut]] = strings.Split(part[cut+1:], "|")
	}
	return oid, tables
}
