package recipe

import (
	"reflect"
	"strings"
	"testing"
)

// TestParticipationTyped reads ways of taking part, and what goes with them, as people
// type them.
func TestParticipationTyped(t *testing.T) {
	half, tenth := Rational{Num: 1, Den: 2}, Rational{Num: 1, Den: 10}
	dummies := func(s string) (any, error) { return ParseDummies(s) }
	as := func(parse func(string) (Participation, error)) func(string) (any, error) {
		return func(s string) (any, error) { return parse(s) }
	}
	for _, c := range []struct {
		parse func(string) (any, error)
		text  string
		want  any // nil: refused, as says tells
		says  string
	}{
		{as(ParseBernoulli), "1/10", Bernoulli{tenth}, ""},
		{as(ParseBernoulli), "0.1", Bernoulli{tenth}, ""},
		{as(ParseBernoulli), "1:10", nil, "decimal"},
		{as(ParseImportance), "1/10:1/2", Importance{Default: tenth, Other: half}, ""},
		{as(ParseImportance), "1/10", nil, "has 1 parts, want 2 with colons between them"},
		{as(ParseImportance), "1/10:x", nil, `"x"`},
		{as(ParseDonationTime), "1/2:4:6", DonationTime{Rate: half, Slots: 4, Length: 6}, ""},
		{as(ParseDonationTime), "1/2:4097:6", nil, "too many or too long slots"},
		{as(ParseDonationTime), "1/2:4:1048577", nil, "too many or too long slots"},
		{as(ParseDonationTime), "1/2:4:-1", nil, `"-1" is not a whole number`},
		{dummies, "1/2:5000:720", &Dummies{Rate: half, Senders: 5000, Allowance: 720}, ""},
		{dummies, "1/2:5000:1/2", nil, `"1/2" is not a whole number`},
		{dummies, "", nil, "has 1 parts, want 3"},
	} {
		got, err := c.parse(c.text)
		switch {
		case c.want == nil && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%q: %v, %v; want an error with %s", c.text, got, err, c.says)
		case c.want != nil && (err != nil || !reflect.DeepEqual(got, c.want)):
			t.Errorf("%q: %+v, %v; want %+v", c.text, got, err, c.want)
		}
	}
}

// TestTargetingTyped: clauses and values are put in order, and evidence is read whole or
// not at all.
func TestTargetingTyped(t *testing.T) {
	clauses, err := ParseClauses("language=de;platform=linux,ios")
	if err != nil || len(clauses) != 2 || clauses[0].Attribute >= clauses[1].Attribute {
		t.Fatalf("%+v, %v", clauses, err)
	}
	for _, c := range clauses {
		if c.Attribute.String() == "platform" && !reflect.DeepEqual(c.Values, []string{"ios", "linux"}) {
			t.Errorf("%+v", c)
		}
	}
	for text, says := range map[string]string{"platform": "is not ATTRIBUTE=VALUE,VALUE", "name=ann": "no attribute", "": "is not ATTRIBUTE"} {
		if got, err := ParseClauses(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	id, entry := ID{1}, Hash{2}
	text := id.String() + ":" + strings.Repeat("02", 1) + strings.Repeat("00", 31) + ":5000:100"
	if got, err := ParseCertificate(text); err != nil || got != (Certificate{Recipe: id, Entry: entry, LowerBound: 5000, MinPopulation: 100}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", text + ":1", "x" + text, strings.Replace(text, ":0200", ":02", 1), strings.Replace(text, "5000", "-1", 1)} {
		if got, err := ParseCertificate(bad); err == nil || got != (Certificate{}) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}
