package main

import (
	"strings"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// describe notes a subject's configuration, for doubts about fairness.
func (s *stage) describe(load string, who subject) {
	shown := map[string]string{}
	switch who := who.(type) {
	case ours:
		shown["-set"] = strings.Join(who.set, " ")
	case *debezium:
		for _, p := range []properties{standalone(s.road()), who.worker, who.configuration(task{"SLOT", "TOPIC"})} {
			for key, value := range p {
				shown[key] = value
			}
		}
		delete(shown, "database.password")
		shown["JVM"] = who.heap + " " + rig.JVMOptions
	}
	s.results.Configurations[load+": "+who.name()] = shown
}
