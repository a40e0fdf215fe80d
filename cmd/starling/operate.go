package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/deploy"
)

// operateTimeout bounds what a running aggregator is told to do. A backup takes as long as
// it takes.
const operateTimeout = 10 * time.Minute

// operate has an aggregator that runs do something, and returns its answer. It fails with
// errStopped where it does not run.
func operate(ctx context.Context, c *deploy.Aggregator, path string, body any) (*http.Response, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	host := string(c.Local.Address)
	if c.Local.Address.IsUnix() {
		host = "local"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+host+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	token, unread := c.OperatorToken()
	if unread == nil {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := localClient(c.Local.Address)
	if client.Timeout = operateTimeout; path == status.BackupPath {
		client.Timeout = 0
	}
	resp, err := client.Do(req)
	if op := new(net.OpError); errors.As(err, &op) && op.Op == "dial" {
		return nil, errStopped
	} else if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return nil, err
	}
	text := strings.TrimSpace(string(said))
	switch {
	case resp.StatusCode == http.StatusUnauthorized && unread != nil:
		return nil, failf(exitInput, "type it as the user that runs it", "it runs, and may only be told by who can read its data directory: %w", unread)
	case resp.StatusCode == http.StatusUnauthorized:
		return nil, failf(exitInput, "see that data in the configuration is the directory of the one that runs", "another answers on its local listener: %s", text)
	case resp.StatusCode == http.StatusBadRequest && slices.Contains(status.RegistryPaths(), path):
		return nil, &status.BadRequest{Err: errors.New(text)}
	case resp.StatusCode == http.StatusBadRequest:
		return nil, failf(exitInput, "starling status prints the tasks' ids", "%s", text)
	}
	return nil, fmt.Errorf("it answers with status %d: %s", resp.StatusCode, text)
}

// operateJSON is operate for answers in JSON.
func operateJSON(ctx context.Context, c *deploy.Aggregator, path string, body, into any) error {
	resp, err := operate(ctx, c, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// decideTasks has a leader decide about tasks, now where it runs, and else at its next
// start.
func decideTasks(ctx context.Context, f *leaderFile, path string, reason string, stopped func() (status.Decided, error)) (done status.Decided, running bool, err error) {
	d := status.Decision{Reason: reason}
	for _, id := range f.tasks {
		d.Tasks = append(d.Tasks, id.Base64())
	}
	err = operateJSON(ctx, f.config, path, d, &done)
	if !errors.Is(err, errStopped) {
		return done, true, err
	}
	done, err = stopped()
	return done, false, err
}
