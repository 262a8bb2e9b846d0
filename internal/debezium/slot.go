package debezium

import (
	"regexp"
	"strings"
)

var slotPattern = regexp.MustCompile(`^[a-z0-9_]{1,59}$`)

// slot decides whether Debezium's slot can be taken over, and names slot and
// publication.
func (t *translation) slot() {
	plugin, _ := t.get("plugin.name", "decoderbufs")
	slot, _ := t.get("slot.name", "debezium")
	publication, _ := t.get("publication.name", "dbz_publication")
	drop, hasDrop := t.get("slot.drop.on.stop", "false")
	pgoutput := strings.EqualFold(strings.TrimSpace(plugin.Value), "pgoutput")
	drops := isTrue(drop.Value)
	takeOver := pgoutput && !drops

	name := t.resolve(slot, "CDC_SLOT")
	published := t.resolve(publication, "CDC_PUBLICATION")
	switch {
	case takeOver:
		t.say(plugin, Same, "", "the slot can be taken over")
		t.say(slot, Same, "source.slot", name.notes...)
		t.put("source.slot", name.text)
		t.put("source.create", "false")
	default:
		other := "cdc_outbox"
		if slotPattern.MatchString(name.text) {
			other = name.text + "_cdc"
		}
		t.put("source.slot", other)
		t.put("source.create", "true")
		t.say(slot, Differs, "source.slot", "a slot of our own: Debezium's cannot be taken over")
	}
	if pgoutput && drops {
		t.say(plugin, Same, "")
	}
	if !pgoutput {
		t.say(plugin, Differs, "source.slot, source.create", "the slot's plugin must be pgoutput, which every server has: setup makes such a slot; the switch is that with a new slot")
		t.put("source.publication", "cdc_outbox")
		t.say(publication, Differs, "source.publication", "the plugin reads no publication; setup makes one of the outbox tables")
	} else {
		t.put("source.publication", published.text)
		t.say(publication, Same, "source.publication", published.notes...)
	}
	switch {
	case drops:
		t.say(drop, Differs, "source.slot, source.create", "Debezium drops the slot at its stop: switch with a new slot, or set it to false there first")
	case hasDrop || takeOver:
		t.say(drop, Same, "", "the slot stays")
	}
	auto, _ := t.get("publication.autocreate.mode", "all_tables")
	switch {
	case !pgoutput:
	case strings.EqualFold(auto.Value, "disabled"):
		t.say(auto, Same, "source.create", "a missing publication is an error")
	case takeOver:
		t.say(auto, Differs, "source.create", "the existing publication is used; setup makes a missing one, of the outbox tables alone")
	default:
		t.say(auto, Differs, "source.create", "a missing publication is made of the outbox tables alone")
	}
	t.snapshot()
}

// snapshot judges snapshot.mode. Debezium has published the rows already.
func (t *translation) snapshot() {
	mode, _ := t.get("snapshot.mode", "initial")
	t.put("source.snapshot", "never")
	const key = "source.snapshot"
	switch strings.ToLower(strings.TrimSpace(mode.Value)) {
	case "never", "no_data", "schema_only":
		t.say(mode, Same, key)
	case "initial", "exported":
		t.say(mode, Differs, key, "Debezium has published the rows that are in the table; initial is for a connector that never ran")
	case "when_needed":
		t.say(mode, Differs, key, "a lost slot is exit code 3; errors.on_loss: repair publishes the missing rows instead, and needs source.create: true")
	case "always":
		t.say(mode, None, key, "no row is published at each start; the verb snapshot publishes rows again")
	case "initial_only":
		t.say(mode, None, key, "the verb snapshot publishes rows and ends; run follows the log")
	default:
		t.say(mode, None, key, "the verb snapshot publishes rows by a condition")
	}
}

func isTrue(text string) bool { return strings.EqualFold(strings.TrimSpace(text), "true") }
