package docs

import (
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// foreign are names in comments that are not of Go code in this repository:
// products, and the code of others.
var foreign = names(`
	BuildKit CloudFormation GitHub JavaScript OpenTelemetry pgSQL ReplicaSet W3C
	CdcOutboxRetainedWALHigh IdempotencyTable
	CopyData FirstNormalObjectId IntervalStyle LoadPublications MaxAllocSize ReorderBufferIterCompare ReplicationSlotValidateName
	WalSndDone WalSndKeepaliveIfNecessary WalSndUpdateProgress
	BigDecimal BigInteger HashMap LocalDate SimpleHeaderConverter toByteArray toString
	JsonConverter JsonSchemaData RegexRouter UtilsTest appendReplacement replaceFirst testMurmur2
	internals.Topic s.PGSQL util.Properties
	asyncClose flushAppendOnlyFile maybeRunChan storePartitionsUpdate
	FetchMaxBytes FetchMaxPartitionBytes MaxConcurrentFetches GroupTransactSession
	HookBrokerE2E HookBrokerRead HookBrokerThrottle RouteRandomly ServeFileFS
	config.LoadDefaultConfig redis.Ring sqlx.Tx
`)

// A comment names only identifiers that exist: after a renaming the old name
// would lead nowhere.
func TestNamesInCommentsExist(t *testing.T) {
	known := identifiers{
		packages: map[string]map[string]bool{}, others: map[string]bool{},
		members: map[string]map[string]bool{}, open: map[string]bool{}, words: maps.Clone(foreign),
	}
	files := parsed(t)
	for _, file := range files {
		known.read(file)
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		for _, name := range known.missing(files[path]) {
			t.Errorf("%s: there is no %s", path, name)
		}
	}
}

// identifiers are the names in the code of this repository.
type identifiers struct {
	packages map[string]map[string]bool // declared names, by the package's name
	others   map[string]bool            // imported packages of others
	members  map[string]map[string]bool // fields and methods, by the type's name
	open     map[string]bool            // types with embedded members
	words    map[string]bool            // all of them, and the words in strings
}

func (k *identifiers) read(file *ast.File) {
	name := strings.TrimSuffix(file.Name.Name, "_test")
	if k.packages[name] == nil {
		k.packages[name] = map[string]bool{}
	}
	for _, d := range file.Decls {
		declare(d, k.packages[name], k.members, k.open)
	}
	maps.Copy(k.others, imported(file))
	maps.Copy(k.words, identifiersOf(file))
	ast.Inspect(file, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			for _, word := range camel.FindAllString(text.Value, -1) {
				k.words[word] = true
			}
		}
		return true
	})
}

// missing returns the names in a file's comments that are not declared.
func (k *identifiers) missing(file *ast.File) (names []string) {
	elsewhere, local := imported(file), identifiersOf(file)
	for _, group := range file.Comments {
		text := indented.ReplaceAllString(group.Text(), "")
		for _, m := range qualified.FindAllStringSubmatch(text, -1) {
			declared, ours := k.packages[m[1]]
			switch {
			case foreign[m[1]+"."+m[2]], elsewhere[m[1]], !ours && (k.others[m[1]] || local[m[1]]):
				text = strings.ReplaceAll(text, m[0], "")
			case !declared[m[2]], m[3] != "" && !k.open[m[2]] && !k.members[m[2]][m[3]]:
				names = append(names, m[0])
			}
		}
		for _, m := range method.FindAllStringSubmatch(text, -1) {
			if k.members[m[1]] != nil && !k.open[m[1]] && !k.members[m[1]][m[2]] {
				names = append(names, m[0])
			}
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if !k.words[m[1]] {
				names = append(names, m[0])
			}
		}
		for _, word := range camel.FindAllString(text, -1) {
			if !k.words[word] {
				names = append(names, word)
			}
		}
	}
	return names
}

func identifiersOf(file *ast.File) map[string]bool {
	all := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			all[name.Name] = true
		}
		return true
	})
	return all
}

// TestCommentsBeginWithTheName reads what stands before a declaration: a word
// in lower case at the beginning is the name.
func TestCommentsBeginWithTheName(t *testing.T) {
	first := regexp.MustCompile(`^[a-z]\w*`)
	for path, file := range parsed(t) {
		for _, d := range file.Decls {
			doc, declared := documented(d)
			if begins := first.FindString(doc.Text()); begins != "" && !declared[begins] {
				t.Errorf("%s: the comment begins with %q, which is not declared there", path, begins)
			}
		}
	}
}

// documented returns the comment before a declaration, and the names it may
// begin with.
func documented(d ast.Decl) (*ast.CommentGroup, map[string]bool) {
	declared := map[string]bool{}
	declare(d, declared, map[string]map[string]bool{}, map[string]bool{})
	switch d := d.(type) {
	case *ast.FuncDecl:
		return d.Doc, declared
	case *ast.GenDecl:
		return d.Doc, declared
	}
	return nil, nil
}

var (
	camel     = regexp.MustCompile(`\b[A-Za-z][a-z0-9]*[a-z0-9][A-Z]\w*\b`)
	link      = regexp.MustCompile(`\[([A-Z][a-z]\w*)\]`)
	qualified = regexp.MustCompile(`\b([a-z][a-z0-9]*)\.([A-Z]\w*)(?:\.([A-Za-z]\w*))?`)
	method    = regexp.MustCompile(`(?:^|[^.\w/])([A-Z]\w*)\.([A-Za-z]\w*)\b`)
)

// imported are the names of packages a file imports from elsewhere.
func imported(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, spec := range file.Imports {
		path := strings.Trim(spec.Path.Value, `"`)
		if strings.HasPrefix(path, "github.com/cdc-outbox/") {
			continue
		}
		for _, part := range strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '-' }) {
			names[part] = true
		}
	}
	return names
}

// declare adds the names a declaration has.
func declare(d ast.Decl, names map[string]bool, members map[string]map[string]bool, open map[string]bool) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		names[d.Name.Name] = true
		if d.Recv != nil {
			add(members, receiver(d.Recv.List[0].Type), d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					names[name.Name] = true
				}
			case *ast.TypeSpec:
				names[spec.Name.Name] = true
				declareType(spec, members, open)
			}
		}
	}
}

func declareType(spec *ast.TypeSpec, members map[string]map[string]bool, open map[string]bool) {
	var fields *ast.FieldList
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		fields = typ.Fields
	case *ast.InterfaceType:
		fields = typ.Methods
	default:
		open[spec.Name.Name] = true
		return
	}
	for _, field := range fields.List {
		if len(field.Names) == 0 {
			open[spec.Name.Name] = true
		}
		for _, name := range field.Names {
			add(members, spec.Name.Name, name.Name)
		}
	}
}

func names(list string) map[string]bool {
	all := map[string]bool{}
	for _, name := range strings.Fields(list) {
		all[name] = true
	}
	return all
}

func add(members map[string]map[string]bool, typ, name string) {
	if members[typ] == nil {
		members[typ] = map[string]bool{}
	}
	members[typ][name] = true
}

func receiver(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return receiver(expr.X)
	case *ast.IndexExpr:
		return receiver(expr.X)
	case *ast.IndexListExpr:
		return receiver(expr.X)
	case *ast.Ident:
		return expr.Name
	}
	return ""
}
