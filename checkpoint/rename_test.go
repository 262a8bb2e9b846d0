package checkpoint

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func TestFollowing(t *testing.T) {
	a, b, odd := pg.Table{Schema: "public", Name: "a"}, pg.Table{Schema: "public", Name: "b"}, pg.Table{Schema: "s", Name: `x,"messages:y`}
	at := func(oid uint32, t pg.Table) catalog.TableInfo { return catalog.TableInfo{OID: oid, Table: t} }
	for name, c := range map[string]struct {
		before, now        []catalog.TableInfo
		scope, publication string // public.a is 1, public.b is 2
	}{
		"nothing":              {[]catalog.TableInfo{at(1, a)}, []catalog.TableInfo{at(1, a)}, "public.a", "9:public.a=1/11"},
		"a rename":             {[]catalog.TableInfo{at(1, a)}, []catalog.TableInfo{at(1, b)}, "public.b", "9:public.b=1/11"},
		"two change places":    {[]catalog.TableInfo{at(1, a), at(2, b)}, []catalog.TableInfo{at(2, a), at(1, b)}, "public.a,public.b", "9:public.a=2/12,public.b=1/11"},
		"to a name with marks": {[]catalog.TableInfo{at(1, a), at(2, b)}, []catalog.TableInfo{at(1, odd), at(2, b)}, `public.b,s."x,""messages:y"`, `9:public.b=2/12,s."x,""messages:y"=1/11`},
		"another table":        {[]catalog.TableInfo{at(1, a)}, []catalog.TableInfo{at(3, b)}, "public.a", "9:public.a=1/11"},
		"a table made anew":    {[]catalog.TableInfo{at(1, a)}, []catalog.TableInfo{at(3, a)}, "public.a", "9:public.a=1/11"},
		"and the old one kept": {[]catalog.TableInfo{at(1, a)}, []catalog.TableInfo{at(3, a), at(1, b)}, "public.b", "9:public.b=1/11"},
	} {
		for _, messages := range []bool{false, true} {
			suffix := ""
			if messages {
				suffix = `,messages:a,"b,messages:`
			}
			var tables []pg.Table
			p := catalog.Publication{OID: 9}
			for _, info := range c.before {
				tables = append(tables, info.Table)
				p.Tables = append(p.Tables, catalog.PublishedTable{Table: info.Table, RelID: info.OID, MemberOID: info.OID + 10})
			}
			cp := Checkpoint{Scope: Scope(tables, messages, `a,"b,messages:`), Publication: p.Fingerprint(tables), Owned: Owned(nil).Seen(c.before, 5)}
			got := cp.Following(c.now)
			if got.Scope != c.scope+suffix || got.Publication != c.publication {
				t.Errorf("%s: scope %s, publication %s; want %s and %s", name, got.Scope, got.Publication, c.scope+suffix, c.publication)
			}
			if again := got.Following(c.now); again.Scope != got.Scope || again.Publication != got.Publication {
				t.Errorf("%s: a second time it is %s, %s", name, again.Scope, again.Publication)
			}
		}
	}
}
