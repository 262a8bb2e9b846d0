package debezium

import "strings"

// Place is where a connector reads and writes.
type Place struct {
	Slot, Publication string
	Plugin            string
	DropsSlot         bool   // at its stop
	Regex, Topic      string // of the outbox event router
}

// Place tells the options as the input has them, or Debezium's defaults.
func (r *Result) Place() Place {
	value := func(option, otherwise string) string {
		for _, v := range r.Verdicts {
			if (v.Option == option || strings.HasSuffix(v.Option, "."+option)) && v.Value != "" {
				return strings.TrimSpace(v.Value)
			}
		}
		return otherwise
	}
	return Place{
		Slot: value("slot.name", "debezium"), Publication: value("publication.name", "dbz_publication"),
		Plugin: value("plugin.name", "decoderbufs"), DropsSlot: isTrue(value("slot.drop.on.stop", "false")),
		Regex: value("route.topic.regex", "(?<routedByValue>.*)"), Topic: value("route.topic.replacement", "outbox.event.${routedByValue}"),
	}
}
