// Package parties runs a leader and a helper as processes of their own, for tools that
// measure what an operator would see: uploads over HTTP, /statusz, /readyz, exit codes.
package parties

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// A Pair is a leader and a helper that run, with one task that counts.
type Pair struct {
	// Dir has the configurations.
	Dir string
	// Client prepares reports for the task.
	Client *client.Client
	// Leader and Helper are the two, or the first process of each.
	Leader, Helper *Party
	// Databases are those of helper and leader, where each is several processes.
	Databases []*Database

	more []*Party // further processes
	ends []func() // of all else that runs
}

// Replicas say how many processes leader and helper have, each on a server of PostgreSQL of
// its own, behind something that spreads connections.
type Replicas struct {
	Each int
	// Objects is the section of a leader's configuration that names object storage; empty
	// where all uploads are rows.
	Objects string
}

// A Party is one process.
type Party struct {
	Role   string
	Config string // file
	Public string // address
	local  string // address
	cmd    *exec.Cmd
	ended  chan struct{}
	err    error // of the process; after ended
}

// Build builds the binary into a directory, and returns where it is.
func Build(dir string) (string, error) {
	binary := filepath.Join(dir, "starling")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/starling-agg/starling/cmd/starling").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return binary, nil
}

// Start makes a deployment in dir, which must not be there, has change look through the
// text of each configuration, by role, and starts both. Call [Pair.Stop] in the end.
func Start(binary, dir string, change func(role, text string) string) (*Pair, error) {
	return StartTask(binary, dir, account.Options{
		Name: "count", Query: recipe.Count{}, MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1},
	}, change)
}

// StartTask is Start for another task, but for the addresses of leader and helper.
func StartTask(binary, dir string, task account.Options, change func(role, text string) string) (*Pair, error) {
	return begin(binary, dir, task, change, nil, nil)
}

// StartReplicas is StartTask with several processes of each.
func StartReplicas(binary, dir string, task account.Options, replicas Replicas) (*Pair, error) {
	return begin(binary, dir, task, nil, &replicas, nil)
}

// begin is all of them; beside makes more while the addresses are held.
func begin(binary, dir string, task account.Options, change func(role, text string) string, replicas *Replicas, beside func(*deploy.Addresses) error) (_ *Pair, err error) {
	a, err := deploy.Loopback()
	if err != nil {
		return nil, err
	}
	defer a.Close()
	task.Leader, task.Helper = a.LeaderURL(), a.HelperURL()
	r, err := account.New(task)
	if err != nil {
		return nil, err
	}
	if err := deploy.Create(dir, r, a); err != nil {
		return nil, err
	}
	p := &Pair{
		Dir:    dir,
		Leader: &Party{Role: "leader", Public: a.Leader.Addr().String(), local: a.LeaderLocal.Addr().String()},
		Helper: &Party{Role: "helper", Public: a.Helper.Addr().String(), local: a.HelperLocal.Addr().String()},
	}
	if beside != nil {
		if err := beside(a); err != nil {
			return nil, err
		}
	}
	a.Close() // the processes listen there
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
			p.End()
		}
	}()
	for _, s := range p.Both() {
		s.Config = filepath.Join(dir, s.Role+".toml")
		text, err := os.ReadFile(s.Config)
		if err != nil {
			return nil, err
		}
		if change != nil {
			text = []byte(change(s.Role, string(text)))
		}
		if err := os.WriteFile(s.Config, text, 0o600); err != nil {
			return nil, err
		}
		if replicas != nil {
			if err := replicas.add(p, s); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range p.All() {
		if err := s.start(binary); err != nil {
			return nil, err
		}
	}
	bytes, err := r.Append(nil)
	if err != nil {
		return nil, err
	}
	if p.Client, err = client.New(client.Options{Prover: account.Prover, Recipe: bytes, MaxEpsilon: math.Inf(1)}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		if err = p.Client.Refresh(ctx); err == nil {
			return p, nil
		}
		if failed := p.Failed(); failed != nil || ctx.Err() != nil {
			return nil, errors.Join(failed, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Both are helper and leader, or the first process of each.
func (p *Pair) Both() []*Party { return []*Party{p.Helper, p.Leader} }

// All are all processes.
func (p *Pair) All() []*Party { return append(p.Both(), p.more...) }

// Failed says whether one of them has ended by itself.
func (p *Pair) Failed() error {
	for _, s := range p.All() {
		select {
		case <-s.ended:
			return fmt.Errorf("the %s has ended: %w", s.Role, s.err)
		default:
		}
	}
	return nil
}

// Stop stops all in order, and fails where one had ended before or does not end well.
func (p *Pair) Stop() error {
	var errs []error
	for _, s := range slices.Backward(p.All()) {
		errs = append(errs, s.stop())
	}
	return errors.Join(errs...)
}

// End ends what else runs, the databases: after [Pair.Stop].
func (p *Pair) End() {
	for _, end := range slices.Backward(p.ends) {
		end()
	}
}

// Kill ends the process as kill -9 does, and waits until it is gone.
func (s *Party) Kill() error {
	if err := s.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the %s: %w", s.Role, err)
	}
	<-s.ended
	return nil
}

// Again starts a party that was killed, and does not wait until it answers.
func (s *Party) Again() error { return s.start(s.cmd.Path) }

// Answers waits until the party answers on its local listener. One that ends meanwhile is
// started again, for its port may be another's for a moment.
func (s *Party) Answers(within time.Duration) error {
	deadline := time.Now().Add(within)
	for {
		_, _, err := s.Get("/livez")
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the %s does not come back: %w", s.Role, err)
		}
		select {
		case <-s.ended:
			if err := s.Again(); err != nil {
				return err
			}
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *Party) start(binary string) error {
	s.cmd = exec.Command(binary, "serve", s.Role, s.Config)
	log, err := os.OpenFile(s.Config+".log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd.Stderr = log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		if s.err = s.cmd.Wait(); s.err == nil {
			s.err = errors.New("exit status 0")
		}
	}()
	return nil
}

func (s *Party) stop() error {
	if s.ended == nil {
		return nil
	}
	select {
	case <-s.ended:
		return fmt.Errorf("the %s had ended: %w", s.Role, s.err)
	default:
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the %s ended with exit code %d: %w", s.Role, code, s.err)
	}
	return nil
}

// Status asks for the party's status.
func (s *Party) Status() (*status.Status, error) {
	_, body, err := s.Get("/statusz")
	if err != nil {
		return nil, err
	}
	out := new(status.Status)
	if err := json.Unmarshal(body, out); err != nil || len(out.Tasks) != 1 {
		return nil, errors.Join(fmt.Errorf("the %s has no status", s.Role), err)
	}
	return out, nil
}

// Get asks the party's local listener.
func (s *Party) Get(path string) (code int, body []byte, err error) {
	resp, err := local.Get("http://" + s.local + path)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// Profile is the party's processor profile over so many seconds.
func (s *Party) Profile(seconds int) ([]byte, error) {
	slow := &http.Client{Transport: local.Transport, Timeout: time.Duration(seconds+30) * time.Second}
	resp, err := slow.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.local, seconds))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the %s gives no profile: status %d", s.Role, resp.StatusCode)
	}
	return io.ReadAll(resp.Body)
}

// local asks nobody in between.
var local = &http.Client{Transport: new(http.Transport), Timeout: 10 * time.Second}

// Seconds are the processor seconds of the party.
func (s *Party) Seconds() float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	_, rest, ok := strings.Cut(string(b), ") ")
	if !ok {
		return 0
	}
	fields := strings.Fields(rest)
	var user, system float64
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return (user + system) / 100 // USER_HZ
}
