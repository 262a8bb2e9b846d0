package main

import (
	"flag"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
)

// configFlags are the flags of every verb reading the configuration.
type configFlags struct {
	file string
	set  []string
}

func declareConfig(flags *flag.FlagSet) *configFlags {
	c := &configFlags{}
	flags.StringVar(&c.file, "c", "", "the configuration `FILE`, YAML; also CDC_OUTBOX_CONFIG")
	// The value is not judged here: package flag would repeat the value, perhaps a
	// secret, in the error.
	flags.Func("set", "override one `KEY=VALUE`, for example log.level=debug; repeatable", func(assignment string) error {
		c.set = append(c.set, assignment)
		return nil
	})
	return c
}

// load reads the configuration from the file, the environment and the flags.
func (c *configFlags) load(p *program) (*config.Config, error) {
	p.command.File, p.command.Set = c.file, invocation.Overrides(c.set, config.IsSecret)
	file := c.file
	if file == "" {
		file = p.getenv("CDC_OUTBOX_CONFIG")
	}
	return config.Load(config.Options{File: file, Environ: p.environ, Set: c.set})
}
