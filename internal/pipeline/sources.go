package pipeline

import (
	"strings"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// sources is a log field with each pipeline's source.
func sources(cfg *config.Config) zap.Field {
	each := cfg.Each()
	read := make([]string, len(each))
	for i, p := range each {
		read[i] = origin(p.Config.Source)
	}
	return zap.Strings("sources", read)
}

// origin describes the source: tables, and messages, through a slot, or tables
// without one.
func origin(s config.Source) string {
	var what []string
	for _, t := range s.Tables {
		what = append(what, t.String())
	}
	switch s.Mode {
	case config.ModePoll:
		return strings.Join(what, ", ")
	case config.ModeMessage:
		what = append([]string{"messages with the prefix " + s.MessagePrefix}, what...)
	}
	return s.Slot + ": " + strings.Join(what, ", ")
}
