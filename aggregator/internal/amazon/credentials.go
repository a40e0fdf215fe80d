// Package amazon reads the credentials with which requests to services of Amazon's, or to
// those that speak as these do, are signed. It is all that the clients of such services
// share here: each makes the few requests that it needs by hand.
package amazon

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/starling-agg/starling/internal/service"
)

// Credentials are those of one profile of a file, as it is now. Safe for concurrent use.
type Credentials struct {
	file    service.Secret
	profile string

	mu   sync.Mutex
	last aws.Credentials // that could be read
}

// Open reads the credentials of a profile, "default" where it is empty, of a file in the
// format of ~/.aws/credentials.
func Open(file service.Secret, profile string) (*Credentials, error) {
	if profile == "" {
		profile = "default"
	}
	c := &Credentials{file: file, profile: profile}
	_, err := c.Current()
	return c, err
}

// Current are the credentials to sign with. A file that cannot be read, as while somebody
// writes it, leaves the last ones in use: the service knows whether they are still good.
func (c *Credentials) Current() (aws.Credentials, error) {
	read, err := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.last = read
	} else if c.last.HasKeys() {
		return c.last, nil
	}
	return read, err
}

// Changed says whether the file has others than the last ones.
func (c *Credentials) Changed() bool {
	read, err := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	return err == nil && read != c.last
}

// read reads the file. Of the keys of the profile it takes three; what other programs
// keep there is theirs.
func (c *Credentials) read() (aws.Credentials, error) {
	b, err := c.file.Read()
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("credentials: %w", err)
	}
	creds := aws.Credentials{Source: string(c.file)}
	within, found := false, false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			within = strings.TrimSpace(strings.Trim(line, "[]")) == c.profile
			found = found || within
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		if !within {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "aws_access_key_id":
			creds.AccessKeyID = value
		case "aws_secret_access_key":
			creds.SecretAccessKey = value
		case "aws_session_token":
			creds.SessionToken = value
		}
	}
	switch {
	case !found:
		return aws.Credentials{}, fmt.Errorf("credentials: %s has no profile [%s]", c.file, c.profile)
	case !creds.HasKeys():
		return aws.Credentials{}, errors.New("credentials: " + string(c.file) + " has no aws_access_key_id and aws_secret_access_key in [" + c.profile + "]")
	}
	return creds, nil
}
