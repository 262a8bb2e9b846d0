package identity

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// profile is a profile of AWS's files. The library runs a credential_process without a deadline:
// a question leaves a slow run to the next question, and no second run begins beside. profile is
// for a single goroutine at a time.
type profile struct {
	of  credentials.FileAWSCredentials
	run chan read // nil: nothing runs
}

// read is what the library has read.
type read struct {
	value credentials.Value
	err   error
}

// RetrieveWithCredContext returns the profile's credentials. The library's goroutine ends with
// the process.
func (p *profile) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	if p.run == nil {
		run := make(chan read, 1)
		go func() {
			value, err := p.of.RetrieveWithCredContext(&credentials.CredContext{Client: client})
			run <- read{value, err}
		}()
		p.run = run
	}
	select {
	case is := <-p.run:
		p.run = nil
		return is.value, is.err
	case <-cc.Context.Done():
		return credentials.Value{}, context.Cause(cc.Context)
	}
}

func (p *profile) source() source {
	name := cmp.Or(p.of.Profile, os.Getenv("AWS_PROFILE"), "default")
	return source{
		name: "AWS profile " + name,
		what: "read AWS credentials of profile " + name,
		remedy: "correct the profile's name, or " + cmp.Or(p.of.Filename, "the files ~/.aws/credentials and ~/.aws/config") +
			"; a credential_process has ten seconds",
		provider: p,
	}
}

// profiled tells whether AWS's files are there.
func profiled() bool {
	if os.Getenv("AWS_PROFILE") != "" {
		return true
	}
	home, _ := os.UserHomeDir()
	file := cmp.Or(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), filepath.Join(home, ".aws", "credentials"))
	_, err := os.Stat(file)
	return err == nil
}
