package config

import "regexp"

// messagePrefix is what a prefix of logical messages may be here. PostgreSQL
// takes any text, but stores it in the database's encoding, which ASCII is the
// same in.
var messagePrefix = regexp.MustCompile(`^[!-~]{1,48}$`)

// chooseTables drops the default table in message mode: messages need none.
func (l *loader) chooseTables() {
	if _, set := l.given["source.tables"]; !set && l.cfg.Source.Mode == ModeMessage {
		l.cfg.Source.Tables = nil
	}
}

func (l *loader) validateMessage() {
	s := &l.cfg.Source
	if !messagePrefix.MatchString(s.MessagePrefix) {
		l.report("source.message_prefix", "is not a legal prefix", "use 1 to 48 printable ASCII characters without spaces")
	}
	if s.Mode == ModeMessage && len(s.Tables) == 0 && s.Snapshot == SnapshotInitial {
		l.report("source.snapshot", "has nothing to read: messages are in no table",
			"set source.snapshot to never; or name the tables to read beside the messages in source.tables")
	}
}
