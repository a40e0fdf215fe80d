package scan

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway"
)

// phases are the states of the deployment in which it is searched, in order. The table of
// docs/data-model.md says by them from when and until when there is anything.
var phases = []string{
	"enrolled",     // each device has enrolled with its code
	"planned",      // and has made its requests to the issuers
	"visited",      // and has its credentials
	"sent",         // and has sent a report, which the gateway has acknowledged
	"acknowledged", // the leader has, too, and its helper is away
	"counted",      // leader and helper have
	"refused",      // others have come, and do not count
	"collected",
	"ended", // the task is closed, and its retention over
	"over",  // so are all rounds of the epoch, and two days
}

// A row says where something may be found.
type row struct {
	party, where, kind string
	from, until        int // phases; until is excluded
}

const (
	document = "../../docs/data-model.md"
	head     = "| party | where | what | from | until |"
)

// rows reads the table with a head, whose states are phases.
func rows(t *testing.T, head string, phases []string) (list []row) {
	t.Helper()
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(b), head+"\n|---|---|---|---|---|\n")
	if !ok {
		t.Fatalf("%s has no table %q", document, head)
	}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 {
			t.Fatalf("%d cells: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		from, until := slices.Index(phases, cells[3]), slices.Index(phases, cells[4])
		if cells[4] == "kept" {
			until = len(phases)
		}
		if from < 0 || until <= from {
			t.Fatalf("from %q until %q: %s", cells[3], cells[4], line)
		}
		for party := range strings.SplitSeq(cells[0], ", ") {
			for kind := range strings.SplitSeq(cells[2], ", ") {
				list = append(list, row{party, cells[1], kind, from, until})
			}
		}
	}
	return list
}

func (r *row) covers(p place) bool {
	ok, err := path.Match(r.where, p.where)
	return err == nil && ok && r.party == p.party && r.kind == p.kind
}

// differs compares what was found in a phase with the table.
func differs(list []row, phases []string, phase int, found map[place]string) (lines []string) {
	matched := make(map[int]bool)
	for p, how := range found {
		allowed := false
		for i := range list {
			if r := &list[i]; r.covers(p) && phase >= r.from && phase < r.until {
				allowed, matched[i] = true, true
			}
		}
		if !allowed {
			lines = append(lines, fmt.Sprintf("%s: one %s is in %s (%s)", p.party, p.kind, p.where, how))
		}
	}
	for i, r := range list {
		if phase >= r.from && phase < r.until && !matched[i] {
			lines = append(lines, fmt.Sprintf("%s: no %s is in %s, where there is one from %s on", r.party, r.kind, r.where, phases[r.from]))
		}
	}
	slices.Sort(lines)
	return lines
}

// TestWhatIsKept: through the whole life of reports, from a device's enrolment until its
// epoch is over, what is known of devices is found in no log, page, database or file but
// those of docs/data-model.md, from when and until when it stands there. What is to go goes
// within seconds; so each search is repeated until it finds what it should.
func TestWhatIsKept(t *testing.T) {
	list := rows(t, head, phases)
	w := newWorld(t)
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	each := func(n int, f func(*device) error) {
		t.Helper()
		for _, d := range w.devices[:n] {
			ok(f(d))
		}
	}
	phase := -1
	next := func(name string) {
		t.Helper()
		if phase++; phases[phase] != name {
			t.Fatalf("%s comes after %s", name, phases[phase])
		}
		late := time.After(time.Minute)
		ticker := time.NewTicker(250 * time.Millisecond)
		defer ticker.Stop()
		for {
			lines := differs(list, phases, phase, w.found())
			if len(lines) == 0 {
				return
			}
			select {
			case <-ticker.C:
			case <-late:
				t.Fatalf("%s:\n%s", name, strings.Join(lines, "\n"))
			}
		}
	}

	w.start()
	for i := range devices {
		w.devices = append(w.devices, w.device(i))
	}
	each(devices, func(d *device) error { return d.enrol(ctx) })
	each(2, func(d *device) error { return d.errs(ctx) })
	next("enrolled")
	each(devices, (*device).plan)
	next("planned")
	each(devices, func(d *device) error { return d.visit(ctx) })
	next("visited")
	w.begins()
	w.gates["leader"].shut()
	each(people, func(d *device) error { return d.answer(ctx) })
	next("sent")
	w.gates["helper"].shut()
	w.gates["leader"].lift()
	w.await("all are passed on", func() bool {
		var s gateway.Status
		ok(json.Unmarshal(w.page("gateway", "/statusz"), &s))
		return s.Passed == people
	})
	next("acknowledged")
	w.gates["helper"].lift()
	w.await("all are counted", func() bool { return w.counts("leader").Aggregated == people })
	next("counted")
	ok(w.refused(ctx))
	w.await("the others are refused", func() bool {
		c := w.counts("leader")
		return len(c.Rejected) > 0 && c.Waiting == 0
	})
	want := map[string]uint64{"report_replayed": 2, "hpke_decrypt_error": 1}
	if got := w.counts("leader"); !maps.Equal(got.Rejected, want) || got.Aggregated != people {
		t.Errorf("%d are counted, and rejected %v, want %v", got.Aggregated, got.Rejected, want)
	}
	next("refused")
	result, err := w.collects(ctx)
	ok(err)
	if result.ReportCount != people {
		t.Errorf("%d reports are collected", result.ReportCount)
	}
	next("collected")
	w.stop()
	ok(w.ends(ctx))
	w.start()
	next("ended")
	w.stop()
	w.epochEnds()
	w.start()
	next("over")
}
