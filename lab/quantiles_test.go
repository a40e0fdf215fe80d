package lab

import (
	"strings"
	"testing"
)

// TestQuantiles plays the lab whose devices mark nodes over their visits, with every kind
// of malicious report: one mark more than was proved is refused like all of them.
func TestQuantiles(t *testing.T) {
	n := 2 * len(attacks)
	r, err := Run(t.Context(), Options{Rows: testRows, Recipe: Quantiles, Malicious: n, Frame: Frame{Out: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	checkJSON(t, r)
	if r.Accepted != testRows || r.Rejected["vdaf_verify_error"] != 4 {
		t.Errorf("accepted %d, rejected %v", r.Accepted, r.Rejected)
	}
	total := int64(0)
	for _, count := range r.Truth {
		total += count
	}
	if len(r.Labels) != 10 || r.Labels[9] != "90-99" || total != testRows || len(r.Deciles) != 9 {
		t.Errorf("%q, %d people, %d deciles", r.Labels, total, len(r.Deciles))
	}
	// Of 600 rows the noise, of which ranks have a deviation of about 20, leaves the
	// median within a few visits: six deviations are 120 ranks.
	if m := r.Deciles[4]; m.Value > 4 || m.Truth > 2 || m.Interval95[1] > 9 || !m.Detected {
		t.Errorf("median %+v", m)
	}
	var text strings.Builder
	if err := r.WriteText(&text, 100, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"decile  visits   truth  95 % interval", "marks at most in a tree over 100 numbers", "616 sent, 600 accepted"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
}
