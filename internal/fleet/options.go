package fleet

import (
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Options are the section fleet.
type Options struct {
	// Group is the name of the group in Kafka; empty for no fleet.
	Group string `yaml:"group"`
	// Member is the name of the process, in the group no other's; empty for the
	// machine's name.
	Member string `yaml:"member"`
	// Rack is the zone of the process; empty for none.
	Rack string `yaml:"rack"`
	// SessionTimeout is how long a silent member keeps its pipelines.
	SessionTimeout time.Duration `yaml:"session_timeout"`
	// Moves is the most pipelines in motion at a time.
	Moves int `yaml:"moves"`
}

// DefaultOptions are the options of an empty section.
func DefaultOptions() Options { return Options{SessionTimeout: 10 * time.Second, Moves: 1} }

// On reports whether there is a fleet.
func (o *Options) On() bool { return o.Group != "" }

// Name is the member's name in the group.
func (o *Options) Name() string {
	if o.Member != "" {
		return o.Member
	}
	name, err := os.Hostname()
	if err != nil {
		return "" // Validate reports it
	}
	return name
}

// Label matches the allowed names of members and zones, by Kafka's rule for group.instance.id.
var Label = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,100}$`)

// LegalLabel is the remedy for other names.
const LegalLabel = "use 1 to 100 letters, digits, dots, underscores or hyphens"

// Validate reports impossible options.
func (o *Options) Validate(report setting.Report) {
	report.Between("fleet.session_timeout", o.SessionTimeout, 6*time.Second, 30*time.Minute)
	report.Number("fleet.moves", o.Moves, 1, 100)
	if o.Rack != "" && !Label.MatchString(o.Rack) {
		report.Problem("fleet.rack", "is not a legal zone", LegalLabel)
	}
	if !o.On() {
		for _, set := range []struct{ key, value string }{{"fleet.member", o.Member}, {"fleet.rack", o.Rack}} {
			if set.value != "" {
				report.Problem(set.key, "has no effect without fleet.group", "name the group, or remove it")
			}
		}
		return
	}
	if strings.TrimSpace(o.Group) != o.Group || len(o.Group) > 255 {
		report.Problem("fleet.group", "is not a legal name of a group", "use up to 255 characters without spaces around them")
	}
	if !Label.MatchString(o.Name()) {
		report.Problem("fleet.member", "is not a legal name of a member (the default is the machine's name)", LegalLabel)
	}
}
