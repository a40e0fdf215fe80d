package agent

import (
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/internal/body"
)

// TestPutBack: an agent whose ledger, or a part of it, went back to what it was a round ago
// does not start: what was paid meanwhile is not known. A copy of the whole home is found out
// where a counter lies outside of it.
func TestPutBack(t *testing.T) {
	for name, c := range map[string]struct {
		rate    string
		files   []string // that go back
		counter bool
	}{
		"the ledger":                    {"", []string{participate.LedgerFile}, false},
		"its mark":                      {"", []string{participate.MarkFile}, false},
		"the slots that were drawn":     {"fixed:1/2:4:1", []string{participate.DrawsFile}, false},
		"all of the home":               {"", []string{participate.LedgerFile, participate.MarkFile, bornFile}, true},
		"all of the home, with slots":   {"fixed:1/2:4:1", []string{participate.LedgerFile, participate.MarkFile, participate.DrawsFile, bornFile}, true},
		"everything is gone":            {"", nil, true},
		"everything is gone, and slots": {"fixed:1/2:4:1", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, c.rate, false)
				home := w.options.Home.Dir
				if c.counter {
					w.options.Home.Counter = filepath.Join(w.dir, "elsewhere", "counter")
					if err := os.Mkdir(filepath.Dir(w.options.Home.Counter), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				w.start()
				give := func() {
					t.Helper()
					if code, name := w.contribute(w.round(), "", some); code != 200 {
						t.Fatalf("%d %s", code, name)
					}
					synctest.Wait()
					time.Sleep(minute)
				}
				give()
				w.stop()
				old := map[string][]byte{}
				for _, file := range c.files {
					b, err := os.ReadFile(filepath.Join(home, file))
					if err != nil {
						t.Fatal(err)
					}
					old[file] = b
				}
				w.start()
				for range 5 {
					give()
				}
				w.stop()
				if len(old) == 0 {
					if err := os.RemoveAll(home); err != nil {
						t.Fatal(err)
					}
				}
				for file, b := range old {
					if err := os.WriteFile(filepath.Join(home, file), b, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if a, err := Open(t.Context(), w.options); !errors.Is(err, participate.ErrLedger) {
					t.Errorf("it starts: %v", err)
					if err == nil {
						a.Close()
					}
				} else if name := outcomeOf(err); name != "ledger" {
					t.Errorf("it is named %s", name)
				}
			})
		})
	}
}

// TestLedgerEnds: a ledger that cannot be written any more takes nothing, says so to who
// contributes, and once to whoever runs the agent.
func TestLedgerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", false)
		w.start()
		if code, name := w.contribute(w.round(), "", some); code != 200 {
			t.Fatalf("%d %s", code, name)
		}
		synctest.Wait()
		select {
		case err := <-w.agent.Failed():
			t.Errorf("it has failed: %v", err)
		default:
		}
		time.Sleep(minute)
		if err := w.agent.account.Ledger().Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if code, name := w.contribute(w.round(), "", some); code != 500 || name != "ledger" {
				t.Errorf("%d %s", code, name)
			}
		}
		select {
		case err := <-w.agent.Failed():
			if !errors.Is(err, participate.ErrLedger) {
				t.Error(err)
			}
		default:
			t.Error("nobody is told")
		}
		if n := w.servers.Counts().Reports; n != 1 || w.paid() != 1 {
			t.Errorf("%d reports, %d paid", n, w.paid())
		}
		w.agent.Close()
	})
}

// TestBodies: processes that send without end hold so much memory and no more, and get it
// back; what was refused for it costs nothing.
func TestBodies(t *testing.T) {
	w := newWorld(t, "", false)
	w.start()
	defer func() { w.stop() }()
	if n := w.agent.bodies.Free(); n < 4*dimension || n > 1<<30 {
		t.Errorf("%d bytes for bodies", n)
	}
	w.agent.bodies = body.NewBudget(1 << 10)
	at := fmt.Sprintf("/v1/contributions?task=%v&round=%d", w.checked.ID(), w.round())
	var ends []*io.PipeWriter
	var crew sync.WaitGroup
	for w.agent.bodies.Free() >= 4*dimension {
		r, end := io.Pipe()
		ends = append(ends, end)
		crew.Go(func() {
			w.agent.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", at, r))
		})
		if _, err := end.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if len(ends) > 1<<10 {
			t.Fatal("no end")
		}
	}
	if code, name := w.contribute(w.round(), "", some); code != 503 || name != "unavailable" || w.paid() != 0 {
		t.Errorf("beside others: %d %s, %d paid", code, name, w.paid())
	}
	for _, end := range ends {
		end.CloseWithError(io.ErrUnexpectedEOF)
	}
	crew.Wait()
	if n := w.agent.bodies.Free(); n != 1<<10 {
		t.Errorf("%d bytes are free afterwards", n)
	}
	if code, name := w.contribute(w.round(), "", some); code != 200 {
		t.Errorf("afterwards: %d %s", code, name)
	}
}
