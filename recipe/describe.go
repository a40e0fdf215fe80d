package recipe

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/internal/prose"
)

func (NoClaim) String() string { return "no differential privacy is claimed" }
func (c ApproxDP) String() string {
	trust := "whoever is honest"
	if c.HonestServers > 0 {
		trust = fmt.Sprintf("if %s honest", count(uint64(c.HonestServers), "server is", "servers are"))
	}
	return fmt.Sprintf("epsilon %s at delta %s, %v neighbours, over %s, %s", c.Epsilon, c.Delta, c.Neighbours,
		count(uint64(c.Rounds), "round", "rounds"), trust)
}

func (NoWindow) String() string { return "no limit in time" }
func (w Between) String() string {
	return fmt.Sprintf("units %d up to, not including, %d", w.Start, w.End)
}

// Particulars are what has been computed about a recipe, for whoever shows it.
type Particulars struct {
	// Guarantee is required.
	Guarantee *Guarantee
	// Refused is why the claim does not hold; nil if it does.
	Refused error
	// BothHonest is the loss where both servers are honest although the claim needs one;
	// nil where no more is known of it.
	BothHonest *Loss
	// ProvedBound is what devices that randomize prove; nil for others.
	ProvedBound *ProvedBound
	// CheckIns is what paper 004 states of the recipe's check-ins; nil without a randomizer
	// that makes each report private by itself, of which its theorems are.
	CheckIns *CheckInBound
	// Width is how many columns the words may take, 108 if 0 or more.
	Width int
}

// Describe writes the recipe for people: what is asked, of whom, who sees what, the
// guarantee and what is left of it when an assumption fails. A recipe whose claim does
// not hold is described as such. It fails when the recipe has no bytes, and with w's
// errors.
func (r *Recipe) Describe(w io.Writer, p Particulars) error {
	id, err := r.ID()
	if err != nil {
		return err
	}
	var b strings.Builder
	line := func(label, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		for i, part := range prose.Wrap(text, prose.Columns(p.Width, 108)-16) {
			if i > 0 {
				label = ""
			}
			fmt.Fprintf(&b, "%-16s%s\n", label, part)
		}
	}
	fmt.Fprintf(&b, "%s\n", r.Name)
	if r.Description != "" {
		fmt.Fprintf(&b, "%s\n", r.Description)
	}
	b.WriteByte('\n')
	r.describeLacks(line)
	line("Recipe", "%s", id)
	line("Asked", "%s", r.asked())
	if text := r.describeLabels(); text != "" {
		line("", "%s", text)
	}
	if text, err := r.expected(); err == nil && text != "" {
		line("", "%s", text)
	}
	if text := r.expectedErrors(); text != "" {
		line("", "%s", text)
	}
	line("Protects", "%s", r.PrivacyUnit())
	if whom := r.Population; whom != nil {
		line("Of whom", "%s", whom.Statement)
		if whom.Expected > 0 {
			line("", "about %s expected", count(whom.Expected, "person", "people"))
		}
	}
	line("When", "%s; report times are cut to %s", r.when(), time.Duration(r.BatchUnits())*time.Duration(r.TimePrecision)*time.Second)
	line("Rounds", "%s", r.describeRounds())
	r.describeViews(line)
	r.describeTraining(line)
	line("Taking part", "%s", r.Participation)
	line("On the device", "%s", r.Randomizer)
	if z, q, ok := r.blursGroups(); ok {
		line("", "an answer has %s", count(uint64(z.Bits(q)), "bit", "bits"))
		if hint := z.Hint(q); hint != "" {
			line("", "%s", hint)
		}
	}
	if b := p.ProvedBound; b != nil {
		line("", "%s", r.describeBound(*b))
	}
	if s := r.Targeting; s != nil {
		line("", "%s", s)
	}
	if s := r.Dummies; s != nil {
		adds := "nothing"
		if _, ok := r.Randomizer.(VectorRandomizer); ok {
			adds = "noise alone"
		}
		line("", "of the others, %s send a dummy, which adds %s, so that the count tells nothing if at least %d devices decide",
			s.Rate, adds, s.Senders)
	}
	if s := r.Cover; s != nil {
		who := "each device uploads"
		if s.Rate != (Rational{Num: 1, Den: 1}) {
			who = fmt.Sprintf("%s of all devices upload", s.Rate)
		}
		line("", "%s one request of one size, a report or a no-op: watching a device's network tells nothing", who)
	}
	line("Path", "%s", r.Path)
	if s := r.Relay; s != nil {
		line("", "through the relay %s to the gateway %s: who sends is hidden from who receives", s.URL, s.Gateway)
	}
	r.describeMessages(line)
	if r.Relay != nil || len(r.Path.servers(r)) > 1 {
		line("", "these are of different owners as far as names tell; only a log or a list of owners can tell more")
	}
	r.describeKeys(line)
	r.describeTokens(line)
	if r.KEM != X25519 {
		line("", "encrypted to %s keys: a report recorded today stays closed to a later quantum computer", r.KEM)
	}
	if r.Epoch > 0 {
		line("", "epoch %d: published again with an id of its own; what a person gave under the epochs before counts on", r.Epoch)
	}
	if r.DAP != dap.Draft18 {
		line("", "spoken in %s", r.DAP)
	}
	for i, view := range r.on().views(r) {
		label := ""
		if i == 0 {
			label = "Who sees what"
		}
		line(label, "%s: %s", view[0], view[1])
	}
	if !r.Path.Proofs() {
		b.WriteByte('\n')
		if err := WritePaths(&b, p.Width); err != nil {
			return err
		}
		b.WriteByte('\n')
	}
	line("Batches", "nothing is released about fewer than %d reports", r.Threshold())
	if s := r.Dummies; s != nil {
		line("", "(%d answers, and up to %d dummies if no more than %d devices decide, as the author says)", r.MinBatch, s.Allowance, r.Rate.Devices)
	}
	if most, ok := r.MostReports(); ok {
		line("", "a sum has room for %d reports; one of more is refused by who reads it", most)
	}
	if r.Randomized() {
		line("Noise", "none from the servers; the devices' own is in every result")
	} else {
		line("Noise", "%s", r.Noise)
	}
	if n, ok := r.Correlated(); ok {
		n.describe(line)
	}
	b.WriteByte('\n')
	r.describeGuarantee(p, line)
	_, err = io.WriteString(w, b.String())
	return err
}

// describeBound says what devices prove about what they send, and what it costs.
func (r *Recipe) describeBound(b ProvedBound) string {
	what := fmt.Sprintf("at most %s", count(b.Bound, "one", "ones"))
	if q, ok := r.Vector(); ok {
		what = fmt.Sprintf("a length of at most %.6g (%d units), where its vector has %.6g", q.Real(int64(b.Bound)), b.Bound, q.Real(int64(b.Answer)))
	}
	text := fmt.Sprintf("and proves %s: %.4g times an answer's.", what, b.Ratio)
	if b.Redraw > 0 {
		text += fmt.Sprintf(" What would be more is drawn again, once in %.3g times at most; that costs %.3g of delta in each batch", 1/b.Redraw, b.Delta)
	}
	return text
}

func (r *Recipe) describeGuarantee(p Particulars, line func(string, string, ...any)) {
	g := p.Guarantee
	if !g.Finite() {
		line("Guarantee", "none by differential privacy: the result is not blurred, and someone who knows the other "+
			"answers can work out the last one. What protects a person is that only sums of %d or more are released.", r.MinBatch)
	} else {
		over := count(uint64(g.Rounds), "round", "rounds")
		if n, ok := r.Correlated(); ok {
			over = n.over(g.Rounds)
		}
		if r.Views != nil {
			over += fmt.Sprintf(" in all %d views", 1+len(r.Views.Wider))
		}
		g.Describe(line, over)
		if b := p.CheckIns; b != nil {
			line("Paper 004", "%s", b)
		}
		if both := p.BothHonest; both != nil {
			too := ""
			if len(g.Conditions) > 0 {
				too = " and the conditions hold"
			}
			line("", "If both servers add their noise and keep it to themselves%s: %s", too, *both)
		}
	}
	for i, a := range g.Assumptions {
		label := ""
		if i == 0 {
			label = "Assuming that"
		}
		line(label, "- %s", a)
	}
	for i, f := range g.Fallbacks {
		label := ""
		if i == 0 {
			label = "Otherwise"
		}
		line(label, "- if %s: %s (%s)", f.When, f.Loss, f.Note)
	}
	holds := ""
	if len(g.Conditions) > 0 {
		holds = ", and what the author says is true"
	}
	line("Claim", "%s%s", r.Claim, holds)
	if p.Refused != nil {
		line("REFUSE", "%s", strings.TrimPrefix(p.Refused.Error(), "recipe: "))
	}
}

// times writes e^epsilon, rounded up.
func times(epsilon float64) string {
	if epsilon > 30 {
		return "e^" + Above(epsilon)
	}
	return Above(outward.Up(math.Exp(epsilon)))
}

func (r *Recipe) when() string {
	w, ok := r.Window.(Between)
	if !ok {
		return r.Window.String()
	}
	start, err1 := r.TimePrecision.Begin(w.Start)
	end, err2 := r.TimePrecision.Begin(w.End)
	if err1 != nil || err2 != nil {
		return w.String()
	}
	return fmt.Sprintf("from %s until %s", start.Format(time.RFC3339), end.Format(time.RFC3339))
}

type tagged struct {
	Type   string `json:"type"`
	Params any    `json:"params,omitempty"`
	Text   string `json:"text"`
}

type claimParams struct {
	Epsilon       string             `json:"epsilon"`
	Delta         string             `json:"delta"`
	Neighbours    release.Neighbours `json:"neighbours"`
	HonestServers uint8              `json:"honest_servers"`
	Rounds        uint32             `json:"rounds"`
}

// JSON writes the recipe for programs that show it: its id and task, the choices by name,
// and the computed guarantee. The bytes, not this, are the recipe; there is no way back.
func (r *Recipe) JSON(said Particulars) (json.RawMessage, error) {
	id, err := r.ID()
	if err != nil {
		return nil, err
	}
	var taskID any
	if r.Path.Proofs() {
		task, err := r.Task()
		if err != nil {
			return nil, err
		}
		taskID = task.TaskID()
	}
	choice := func(registry string, tag uint8, params any, text fmt.Stringer) tagged {
		return tagged{nameOf(registry, uint16(tag)), params, text.String()}
	}
	var claim any
	if c, ok := r.Claim.(ApproxDP); ok {
		claim = claimParams{c.Epsilon.String(), c.Delta.String(), c.Neighbours, c.HonestServers, c.Rounds}
	}
	out := struct {
		ID            ID            `json:"id"`
		TaskID        any           `json:"task_id,omitempty"`
		Name          string        `json:"name"`
		Description   string        `json:"description"`
		Query         tagged        `json:"query"`
		Randomizer    tagged        `json:"randomizer"`
		Participation tagged        `json:"participation"`
		Path          tagged        `json:"path"`
		Noise         tagged        `json:"noise"`
		Claim         tagged        `json:"claim"`
		MinBatch      uint64        `json:"min_batch"`
		TimePrecision uint64        `json:"time_precision"`
		Window        *[2]uint64    `json:"window"`
		Population    any           `json:"population"`
		Epoch         uint32        `json:"epoch,omitempty"`
		Threshold     uint64        `json:"threshold"` // DAP's minimum batch size
		Targeting     *Targeting    `json:"targeting,omitempty"`
		Round         Rounds        `json:"round"`
		Views         *viewsJSON    `json:"views,omitempty"`
		Rate          *Rate         `json:"rate,omitempty"`
		Dummies       *Dummies      `json:"dummies,omitempty"`
		Cover         *Cover        `json:"cover,omitempty"`
		Relay         *Relay        `json:"relay,omitempty"`
		Tokens        *Tokens       `json:"tokens,omitempty"`
		Log           *Log          `json:"log,omitempty"`
		KEM           string        `json:"kem"`
		DAP           string        `json:"dap"`
		Guarantee     *Guarantee    `json:"guarantee"`
		BothHonest    *Loss         `json:"guarantee_if_both_servers_are_honest,omitempty"`
		MostReports   uint64        `json:"most_reports,omitempty"`
		ProvedBound   *ProvedBound  `json:"proved_bound,omitempty"`
		CheckIns      *CheckInBound `json:"checkin_bound,omitempty"`
		Projection    any           `json:"projection,omitempty"`
		ServerKeys    *ServerKeys   `json:"server_keys"`
		Unit          Unit          `json:"unit"`
		Labels        []string      `json:"labels,omitempty"`
		Training      any           `json:"training,omitempty"`
		Forecast      any           `json:"forecast,omitempty"`
		Refused       string        `json:"refused,omitempty"`
	}{
		ID: id, TaskID: taskID, Name: r.Name, Description: r.Description,
		Query:         choice("query", r.Query.query(), r.Query.params(), r.Query),
		Randomizer:    choice("randomizer", r.Randomizer.randomizer(), r.Randomizer.params(), r.Randomizer),
		Participation: choice("participation", r.Participation.participation(), r.Participation.params(), r.Participation),
		Path:          choice("path", r.Path.path(), r.Path.params(), r.Path),
		Targeting:     r.Targeting, Rate: r.Rate, Dummies: r.Dummies, Cover: r.Cover, Relay: r.Relay, Tokens: r.Tokens, Log: r.Log, KEM: r.KEM.String(), DAP: r.DAP.String(),
		Threshold: r.Threshold(), Round: Rounds{Units: r.RoundUnits(), Grace: uint32(r.Grace() / time.Second)}, Views: r.viewsForm(),
		Noise:    choice("noise", r.Noise.noise(), r.Noise.params(), r.Noise),
		Claim:    choice("claim", r.Claim.claim(), claim, r.Claim),
		MinBatch: r.MinBatch, TimePrecision: uint64(r.TimePrecision), Epoch: r.Epoch,
		Guarantee: said.Guarantee, BothHonest: said.BothHonest, ProvedBound: said.ProvedBound, CheckIns: said.CheckIns, ServerKeys: r.ServerKeys, Unit: r.PrivacyUnit(), Labels: r.Labels,
	}
	if w, ok := r.Window.(Between); ok {
		out.Window = &[2]uint64{uint64(w.Start), uint64(w.End)}
	}
	out.Query.Text = r.asked()
	out.MostReports, _ = r.MostReports()
	if p := r.Projection; p != nil {
		out.Projection = map[string]any{"entries": p.Entries, "seed": hex.EncodeToString(p.Seed[:])}
	}
	if f, ok := r.Forecast(r.usual()); ok {
		out.Forecast = struct {
			Reports uint64 `json:"reports"`
			VectorForecast
		}{r.usual(), f}
	}
	if t := r.Training; t != nil {
		out.Training = map[string]string{"controller": t.Controller.String(), "terms": hex.EncodeToString(t.Terms[:])}
	}
	if r.Population != nil {
		out.Population = struct {
			Statement string `json:"statement"`
			Expected  uint64 `json:"expected"`
		}{r.Population.Statement, r.Population.Expected}
	}
	if said.Refused != nil {
		out.Refused = said.Refused.Error()
	}
	return json.Marshal(out)
}
