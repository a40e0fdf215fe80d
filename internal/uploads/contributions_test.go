package uploads

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/shuffle/onion"
)

var _, _, _ gateway.Protocol = DAP{}, Contributions{}, Both{}

func envelope(t testing.TB, size int) []byte {
	t.Helper()
	k, err := sealed.Generate(0, onion.Suite)
	if err != nil {
		t.Fatal(err)
	}
	b, err := onion.Shape{Messages: 1, Size: size}.SealDirect(k.Public(), [][]byte{make([]byte, size)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestContributions: a contribution is one whole envelope at its path, named by its
// recipe and its hash; nothing else is.
func TestContributions(t *testing.T) {
	id := [32]byte{7}
	good := onion.ContributionsPath(id)
	e := envelope(t, 5)
	for _, p := range []gateway.Protocol{Contributions{}, Both{}} {
		if media, err := p.Route(good, onion.ContributionsMedia); err != nil || media != onion.ContributionsMedia {
			t.Errorf("%q, %v", media, err)
		}
		if got, err := p.Task(good); err != nil || got != id {
			t.Errorf("%x, %v", got, err)
		}
		name, err := p.Name(good, e)
		other, err2 := p.Name(good, envelope(t, 5))
		if err != nil || err2 != nil || len(name) != 64 || !bytes.Equal(name[:32], id[:]) || bytes.Equal(name, other) {
			t.Errorf("%x, %x, %v, %v", name, other, err, err2)
		}
		for _, path := range []string{"", "/" + good, good + "/", good + "/1", good[:len(good)-1], "shuffles/x/contributions", onion.KeysPath(id), onion.BatchPath(id, 1),
			"shuffles//contributions", "shuffles/" + good[len("shuffles/"):len("shuffles/")+42] + "-/contributions"} {
			if _, err := p.Route(path, onion.ContributionsMedia); err == nil {
				t.Errorf("%q is routed", path)
			}
			if _, err := p.Name(path, e); err == nil {
				t.Errorf("%q: named", path)
			}
		}
		for _, media := range []string{"", "application/json", onion.ContributionsMedia + ";device=7", dap.ContentType(dap.MediaUploadReq)} {
			if _, err := p.Route(good, media); !errors.Is(err, ErrContribution) {
				t.Errorf("%q: %v", media, err)
			}
		}
		for n := range e {
			if _, err := p.Name(good, e[:n]); !errors.Is(err, ErrContribution) {
				t.Errorf("%d of %d bytes: %v", n, len(e), err)
			}
		}
		for _, b := range [][]byte{append(bytes.Clone(e), 0), append(bytes.Clone(e), e...), body(t, 1)} {
			if _, err := p.Name(good, b); !errors.Is(err, ErrContribution) {
				t.Errorf("%d bytes: %v", len(b), err)
			}
		}
		if refused, err := p.Refusals([][]byte{e}, nil); err != nil || len(refused) > 0 {
			t.Errorf("%v, %v", refused, err)
		}
		if _, err := p.Refusals([][]byte{e}, []byte("taken, thank you")); err == nil {
			t.Error("an answer that is none is taken")
		}
		if !p.Final(400, nil) || !p.Final(413, nil) || p.Final(404, nil) || p.Final(503, nil) || p.Final(401, nil) {
			t.Error("which answers are final")
		}
		unknown := []byte(`{"type":"` + onion.ProblemUnknownRecipe + `"}`)
		// Where targets take both, one that is sent the other kind has no word for it.
		both := p == gateway.Protocol(Both{})
		if !p.Unknown(404, unknown) || p.Unknown(404, nil) != both || p.Unknown(500, unknown) || p.Unknown(404, []byte(`{"type":"urn:starling:shuffle:path"}`)) != both {
			t.Error("which answers say that the recipe is unknown")
		}
		if got := bytes.Join(p.Join([][]byte{e, e}), nil); !bytes.Equal(got, append(bytes.Clone(e), e...)) {
			t.Errorf("joined to %d bytes", len(got))
		}
	}
	if len(Contributions{}.Reasons()) != 0 {
		t.Error("reasons of an answer that has none")
	}
}

// TestBoth: DAP's uploads are what they were, and no path is of both.
func TestBoth(t *testing.T) {
	path := dap.CreationPath(dap.TaskID{7}, dap.ReportsResource)
	media := dap.ContentType(dap.MediaUploadReq)
	if got, err := (Both{}).Route(path, media); err != nil || got != media {
		t.Errorf("%q, %v", got, err)
	}
	name, err := (Both{}).Name(path, body(t, 1))
	if want, _ := (DAP{}).Name(path, body(t, 1)); err != nil || !bytes.Equal(name, want) {
		t.Errorf("%x, %v", name, err)
	}
	if task, err := (Both{}).Task(path); err != nil || task != (dap.TaskID{7}) {
		t.Errorf("%x, %v", task, err)
	}
	if _, err := (Both{}).Route(path, onion.ContributionsMedia); !errors.Is(err, ErrUpload) {
		t.Error(err)
	}
	if _, err := (Contributions{}).Route(path, onion.ContributionsMedia); !errors.Is(err, ErrContribution) {
		t.Error(err)
	}
	if len(Both{}.Reasons()) == 0 {
		t.Error("no reasons")
	}
}
