//go:build postgres

package aggregator_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/agreement"
	"github.com/starling-agg/starling/deploy"
)

// asked is a request that a side was brought.
type asked struct {
	method, path string
	header       http.Header
	body         []byte
}

// requests are those that a side was brought, whose path has a part.
func (s *side) requests(t *testing.T, method, part string) (all []asked) {
	t.Helper()
	s.mu.Lock()
	heard := s.heard
	s.mu.Unlock()
	for _, c := range heard {
		c.mu.Lock()
		b := bytes.Clone(c.b.Bytes())
		c.mu.Unlock()
		for in := bufio.NewReader(bytes.NewReader(b)); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				break
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				break // the connection ended within it
			}
			if r.Method == method && strings.Contains(r.URL.Path, part) {
				all = append(all, asked{r.Method, r.URL.RequestURI(), r.Header, body})
			}
		}
	}
	return all
}

// answered is what a request got.
type answered struct {
	status int
	body   string
	at     string // where an answer of a POST lies
}

// again brings a request once more, as it was.
func (s *side) again(t *testing.T, a asked) answered {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), a.method, "http://"+s.front.Addr().String()+a.path, bytes.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = a.header.Clone()
	if s.unfenced {
		r.Header.Del(agreement.FenceHeader)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	at := resp.Header.Get("Location")
	if u, err := url.Parse(at); err == nil {
		at = u.RequestURI()
	}
	if at == "/" {
		at = ""
	}
	return answered{resp.StatusCode, string(b), at}
}

// A drill is a deployment of which all was brought once.
type drill struct {
	*replicas
	uploads []asked
	jobs    []asked // that the helper has done
	// polls and shares are what was released by leader and helper, with the answers before
	// the disaster.
	polls, shares map[*asked]answered
}

// sharesAgain are the helper's answers, asked for where it said that they lie.
func (d *drill) sharesAgain() map[*asked]answered {
	d.Helper()
	all := make(map[*asked]answered)
	for _, a := range d.helper.requests(d.T, http.MethodPost, "/aggregate_shares") {
		if got := d.helper.again(d.T, a); got.at != "" {
			get := asked{method: http.MethodGet, path: got.at, header: a.header.Clone()}
			get.header.Del("Content-Type")
			if was := d.helper.again(d.T, get); was.status < 300 {
				all[&get] = was
			}
		}
	}
	return all
}

// released has a side answer once more what it was asked for.
func (d *drill) released(s *side, method, part string) map[*asked]answered {
	d.Helper()
	all := make(map[*asked]answered)
	for _, a := range s.requests(d.T, method, part) {
		if got := s.again(d.T, a); got.status < 300 && got.body != "" {
			all[&a] = got
		}
	}
	return all
}

// stop ends both processes of a side.
func (s *side) stop() {
	for i := range s.two {
		_ = s.two[i].cmd.Process.Signal(os.Interrupt)
		<-s.two[i].ended
	}
}

// start starts both.
func (d *drill) start(s *side) {
	d.Helper()
	d.serve(&s.two[0], s.role)
	d.serve(&s.two[1], s.role)
}

// holds demands that nothing is taken or released that was before.
func (d *drill) holds(back *side, when string) {
	d.Helper()
	// A leader that goes on knows what it took; the helper has forgotten what it did.
	s, forgot := d.leader, d.uploads
	if back == d.helper {
		s, forgot = d.helper, d.jobs
	}
	for _, a := range forgot {
		if got := s.again(d.T, a); got.status < 400 {
			d.Errorf("%s: the %s takes again what it was brought: %d", when, s.role, got.status)
		}
	}
	known := 0
	for s, all := range map[*side]map[*asked]answered{d.leader: d.polls, d.helper: d.shares} {
		for a, was := range all {
			switch got := s.again(d.T, *a); {
			case got == was:
				known++
			case got.status < 400:
				d.Errorf("%s: the %s answers %s with %d and other bytes than before", when, s.role, a.path, got.status)
			case s == d.leader && s != back:
				d.Errorf("%s: the leader, whose database was not put back, answers %s with %d", when, a.path, got.status)
			}
		}
	}
	if known == 0 {
		d.Errorf("%s: nothing is known of what was released before the backup", when)
	}
	if back != d.leader {
		return // its leader takes reports until both are compared, and then answers 503
	}
	d.refused("releases:closed", "send", "--any-keys", "--max-epsilon", "0", deploy.RecipeFile, d.answer)
}

// endsByItself waits until a process ends whose database was put back, which it says with the
// words to type.
func (d *drill) endsByItself(p *process) {
	d.Helper()
	select {
	case <-p.ended:
	case <-time.After(time.Minute): // it looks every ten seconds
		d.Fatalf("%s goes on", p.config)
	}
	for _, words := range []string{"database older than its marks", "starling restore --database --yes " + p.config} {
		if !strings.Contains(p.log.String(), words) {
			d.Errorf("%s does not say %q", p.config, words)
		}
	}
}

// TestReplicasPutBack: a leader or a helper of two processes loses its database, and an
// older backup, made by PostgreSQL's own means, is put in its place. No process starts
// before that was said, and those of a helper that run end by themselves, one too that
// was cut off while the others were restored; and then nothing is collected twice, no
// noise is drawn again, and no report is taken again: what was brought before is brought
// again as it was, to a peer that goes on, and to one that starts anew. The same backup,
// put back once more, is found out too.
func TestReplicasPutBack(t *testing.T) {
	for _, x := range []struct{ role, marks string }{
		{"leader", "directory"}, {"leader", "objects"}, {"helper", "directory"}, {"helper", "objects"},
	} {
		t.Run(x.role+"/"+x.marks, func(t *testing.T) {
			d := &drill{replicas: newReplicas(t, true, x.marks)}
			back, other := d.leader, d.helper
			if x.role == "helper" {
				back, other = other, back
			}
			for _, s := range []*side{d.helper, d.leader} {
				d.done("migrate", s.two[0].config)
				d.done("key", "wrapping", "--out", "secrets/wrapping."+s.role)
				d.start(s)
			}
			begun := time.Now()
			d.send(20)
			d.collect(begun, 20)
			backup := back.schema.Backup(t)
			later := time.Now().Add(3 * time.Second)
			time.Sleep(time.Until(later)) // other processes: the first collection ends two seconds from its start
			d.send(30)
			d.collect(later, 30)
			d.uploads = d.leader.requests(t, http.MethodPost, "/reports")
			d.polls = d.released(d.leader, http.MethodGet, "/collection_jobs/")
			d.shares = d.released(d.helper, http.MethodPost, "/aggregate_shares")
			maps.Copy(d.shares, d.sharesAgain())
			d.jobs = d.helper.requests(t, http.MethodPost, "/aggregation_jobs")
			if len(d.uploads) == 0 || len(d.jobs) == 0 || len(d.polls) < 2 || len(d.shares) < 2 {
				t.Fatalf("heard %d uploads, %d released at the leader, %d at the helper", len(d.uploads), len(d.polls), len(d.shares))
			}
			for _, when := range []string{"put back", "put back once more"} {
				// At first those of a helper run, and one of them is cut off; then they are stopped.
				under := x.role == "helper" && x.marks == "directory" && when == "put back"
				away := &back.two[1]
				if under {
					back.only.Store(&back.two[0])
					d.ok(away.cmd.Process.Signal(syscall.SIGSTOP))
					http.DefaultClient.CloseIdleConnections() // some lead to the one that is stopped
				} else {
					back.stop()
				}
				back.schema.PutBack(t, backup)
				if under {
					d.endsByItself(&back.two[0])
				}
				for i := range back.two {
					if under && &back.two[i] == away {
						continue // it has its directories still
					}
					d.refused("starling restore --database", "serve", back.role, back.two[i].config)
				}
				d.refused("nothing was done", "restore", "--database", back.two[0].config)
				if out := d.done("restore", "--database", "--yes", back.two[0].config); !strings.Contains(out, "1 task closed") {
					t.Errorf("%s: restored: %s", when, out)
				}
				if under {
					d.serve(&back.two[0], back.role)
					d.holds(back, when+", while one is cut off")
					d.ok(away.cmd.Process.Signal(syscall.SIGCONT))
					d.endsByItself(away)
					back.only.Store(nil)
					d.serve(away, back.role)
				} else {
					d.start(back)
				}
				d.holds(back, when)
				d.helper.unfenced = true // as from a peer that says nothing of what it holds
				d.holds(back, when+", unfenced")
				d.helper.unfenced = false
				other.stop()
				d.start(other)
				d.holds(back, when+", and the peer anew")
			}
			back.stop()
			d.done("doctor", back.two[0].config)
			if marks := filepath.Join(d.dir, "marks."+back.role); x.marks == "directory" { // which are lost, and found again
				d.ok(os.Rename(marks, marks+".lost"))
				d.refused("marks lost", "serve", back.role, back.two[0].config)
				d.refused("marks lost", "restore", "--database", "--yes", back.two[0].config)
				d.ok(errors.Join(os.RemoveAll(marks), os.Rename(marks+".lost", marks)))
				d.serve(&back.two[0], back.role)
			}
		})
	}
}
