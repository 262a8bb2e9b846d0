package catalog

import "fmt"

// Defect is a fault of some minor versions of PostgreSQL.
type Defect struct {
	// Text names the effect on the connector's events.
	Text string
	// Fixed is the oldest version of the same major without it.
	Fixed int
}

// defects are by server_version_num: from the first version with the defect up
// to the first without.
var defects = []struct {
	from, fixed int
	text        string
}{
	{140000, 140018, losesRows}, {150000, 150013, losesRows}, {160000, 160009, losesRows}, {170000, 170005, losesRows},
	{140018, 140019, growsMemory}, {150013, 150014, growsMemory}, {160009, 160010, growsMemory}, {170005, 170006, growsMemory},
}

const (
	losesRows = "if a publication changes while a transaction that wrote to the table is open, rows written later never reach the stream (the way of setup, which waits for such transactions, is safe)"
	// From the mend of losesRows to the next minor versions.
	growsMemory = "many changes of the catalogs beside long transactions can make the walsender take gigabytes, and then fail at each try (SQLSTATE XX000)"
)

// Defects are the known faults of a server of the version, server_version_num,
// with an effect on us.
func Defects(version int) (found []Defect) {
	for _, d := range defects {
		if version >= d.from && version < d.fixed {
			found = append(found, Defect{Text: d.text, Fixed: d.fixed})
		}
	}
	return found
}

// versionText names a version as PostgreSQL does: 17.5.
func versionText(version int) string { return fmt.Sprintf("%d.%d", version/10000, version%10000) }

// Describe describes the fault in a server of the version, and names the way out.
func (d Defect) Describe(version int) (text, remedy string) {
	return "PostgreSQL " + versionText(version) + " has a defect: " + d.Text,
		"upgrade to " + versionText(d.Fixed) + " or a later minor version; it needs no dump and no new slot"
}
