package aggregator_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sort"
	"sync"
	"testing"
	"testing/cryptotest"
	"time"

	"filippo.io/nistec"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/arc/arctest"
	"github.com/starling-agg/starling/anonymity/attester"
	"github.com/starling-agg/starling/anonymity/issuer"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// served is an issuer as the aggregator beside it asks it.
type served struct{ *issuer.Issuer }

func (x served) Verifier(ctx context.Context, deployment [32]byte, epoch uint64) (*arc.Verifier, arc.KeyID, error) {
	v, key, err := x.Issuer.Verifier(ctx, deployment, epoch)
	if errors.Is(err, issuer.ErrNoKey) {
		err = fmt.Errorf("%w: %w", aggregator.ErrNoIssuerKey, err)
	}
	return v, key, err
}

// Issued implements [aggregator.Issuer].
func (x served) Issued(ctx context.Context, _ [32]byte, epoch uint64) (uint64, error) {
	return x.Count(ctx, uint32(epoch))
}

// A seen is what one party sees of one device at one time: every byte, and when.
type seen struct {
	bytes []byte
	at    time.Time
}

// A crowd is a number of devices that have come to credentials by the real attester and
// issuers, each at the instant that its wallet chose, and have shown them to the real leader
// and helper, each at an instant of its own.
type crowd struct {
	devices int
	visits  map[string][]seen   // by party: the attester and both issuers; in order of the visits
	shown   map[dap.Role][]seen // the upload, the opened share and the mark; in order of the uploads
	at      map[dap.Role][][]byte
	whose   []int // of each upload, the place of its device's visit
	keys    map[dap.Role][]byte
	held    map[dap.Role][]*arc.Credential // by place of the visit
	base    map[dap.Role]*arc.TagBase
}

// dump is a message as it was received, its headers in order.
func dump(head string, h http.Header, body []byte) []byte {
	b := append([]byte(head), '\n')
	for _, k := range slices.Sorted(maps.Keys(h)) {
		b = fmt.Appendf(b, "%s: %q\n", k, h[k])
	}
	return append(b, body...)
}

// crowdOf has devices go all the way.
func crowdOf(t *testing.T, devices int) *crowd {
	t.Helper()
	var mu sync.Mutex
	c := &crowd{devices: devices, visits: map[string][]seen{}, shown: map[dap.Role][]seen{}, at: map[dap.Role][][]byte{}, keys: map[dap.Role][]byte{},
		held: map[dap.Role][]*arc.Credential{}, base: map[dap.Role]*arc.TagBase{}}
	// The clock of the pair begins in an epoch of a day; devices visit for the next.
	deployment, root := [32]byte{9}, signed.Generate()
	clock := newPair(t, setup{}).clock
	coming := uint32(clock.Now().Unix()/day + 1)
	begin := time.Unix(int64(coming)*day, 0).UTC()
	handlers, now := map[string]http.Handler{}, clock.Now
	servers := map[string]string{}
	for _, party := range []string{"attester", "leader", "helper"} {
		s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			answer := httptest.NewRecorder()
			handlers[party].ServeHTTP(answer, r)
			mu.Lock()
			if all := c.visits[party]; len(all) > 0 {
				x := &all[len(all)-1]
				x.bytes = append(x.bytes, dump(r.Method+" "+r.URL.Path, r.Header, body)...)
				x.bytes = append(x.bytes, dump(fmt.Sprint(answer.Code), answer.Header(), answer.Body.Bytes())...)
				x.at = now()
			}
			mu.Unlock()
			maps.Copy(rw.Header(), answer.Header())
			rw.WriteHeader(answer.Code)
			_, _ = rw.Write(answer.Body.Bytes())
		}))
		t.Cleanup(s.Close)
		servers[party] = s.URL
	}
	public, issuers := map[dap.Role]*arc.PublicKey{}, map[dap.Role]*issuer.Issuer{}
	for role, as := range map[dap.Role]signed.Role{dap.RoleLeader: signed.Leader, dap.RoleHelper: signed.Helper} {
		keys := disktest.NewMem(uint64(role))
		public[role] = must(issuer.MakeKey(keys, as, deployment, coming))
		x := must(issuer.New(issuer.Options{Role: as, Deployment: deployment, Epoch: day * time.Second, Keys: keys, Register: disktest.NewMem(10 + uint64(role)),
			Terms: func(epoch uint32) (issuer.Terms, bool) {
				return issuer.Terms{Key: [arc.PublicKeySize]byte(public[role].Append(nil)), Attester: root.Public(), Cap: 1000, Begin: begin}, epoch == coming
			}, Now: now}))
		t.Cleanup(func() { x.Close() })
		issuers[role], handlers[role.String()] = x, x
		for _, e := range must(keys.ReadDir(".")) { // the key, four scalars, ends its file
			if b := must(disk.ReadFile(keys, e.Name, 4096)); len(b) > arc.PrivateKeySize {
				c.keys[role] = b[len(b)-arc.PrivateKeySize:]
			}
		}
	}
	codes, file, err := attester.MakeCodes(devices)
	if err != nil {
		t.Fatal(err)
	}
	a := must(attester.New(attester.Options{Deployment: deployment, Signer: signedtest.Signer(t, root, begin.AddDate(0, 0, -30), 60*24*time.Hour),
		Attestation: must(attester.ReadCodes(file)), Leader: servers["leader"], Helper: servers["helper"], FS: disktest.NewMem(30),
		Terms: func(epoch uint32) (attester.Terms, bool) {
			return attester.Terms{Begin: begin, Cap: 1000}, epoch == coming
		}, Now: now}))
	t.Cleanup(func() { a.Close() })
	handlers["attester"] = a

	m := &ohttp.Manifest{Deployment: deployment, Epoch: coming, Length: day * time.Second, NotBefore: begin, NotAfter: begin.Add(day * time.Second),
		Issuers: &ohttp.Issuers{Leader: [ohttp.IssuerKeySize]byte(public[dap.RoleLeader].Append(nil)),
			Helper: [ohttp.IssuerKeySize]byte(public[dap.RoleHelper].Append(nil)), Attester: root.Public(), Cap: 1000}}
	// A device is a wallet and when it visits.
	type device struct {
		*credentials.Wallet
		at time.Time
	}
	var all []device
	for i := range devices {
		w := must(credentials.Open(credentials.Options{Attester: servers["attester"], Deployment: deployment, FS: disktest.NewMem(uint64(100 + i)), Now: now}))
		if err := w.Enrol(t.Context(), []byte(codes[i])); err != nil {
			t.Fatal(err)
		}
		all = append(all, device{w, must(w.Plan(m))})
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].at.Before(all[j].at) })
	until := func(at time.Time) {
		if d := at.Sub(now()); d > 0 {
			clock.advance(d)
		}
	}
	for _, d := range all {
		until(d.at)
		for _, party := range []string{"attester", "leader", "helper"} {
			c.visits[party] = append(c.visits[party], seen{})
		}
		if err := d.Visit(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	until(begin)

	told := arc.Cohort{Leader: must(issuers[dap.RoleLeader].Count(t.Context(), coming)), Helper: must(issuers[dap.RoleHelper].Count(t.Context(), coming)), Attested: must(a.Count(coming))}
	if told != (arc.Cohort{Leader: uint64(devices), Helper: uint64(devices), Attested: uint64(devices)}) {
		t.Fatalf("%+v have credentials", told)
	}
	s := setup{credentials: &aggregator.Credentials{Deployment: deployment, Units: 1, Epoch: day}}
	s.leader = func(o *leader.Options) { o.Issuer = served{issuers[dap.RoleLeader]} }
	s.helper = func(o *helper.Options) { o.Issuer = served{issuers[dap.RoleHelper]} }
	p := newPair(t, s)
	p.clock.advance(now().Sub(p.clock.Now()))
	round, epoch, err := s.credentials.Round(p.now(), precision)
	if err != nil || epoch != uint64(coming) {
		t.Fatalf("epoch %d, %v", epoch, err)
	}
	as := map[dap.Role]arc.Role{dap.RoleLeader: arc.Leader, dap.RoleHelper: arc.Helper}
	for role := range as {
		c.base[role] = arc.NewTagBase(arc.NewPresentationContext(as[role], p.id, round, public[role].ID()))
	}
	// Each shows at an instant of the round that it draws, as its coins are drawn.
	rng := rand.New(rand.NewPCG(13, 1))
	type showing struct {
		place int
		after time.Duration
	}
	var order []showing
	for i, d := range all {
		if err := d.Told(m, told); err != nil {
			t.Fatal(err)
		}
		order = append(order, showing{i, time.Duration(rng.Int64N(int64(time.Hour - time.Minute)))})
	}
	slices.SortFunc(order, func(a, b showing) int { return cmp.Compare(a.after, b.after) })
	start := p.clock.Now()
	for _, d := range all {
		held := must(d.For(uint64(devices)).Held(uint64(coming)))
		c.held[dap.RoleLeader], c.held[dap.RoleHelper] = append(c.held[dap.RoleLeader], held.Leader), append(c.held[dap.RoleHelper], held.Helper)
	}
	for _, x := range order {
		p.clock.advance(start.Add(x.after).Sub(p.clock.Now()))
		open := map[dap.Role][]byte{}
		r := p.report(x.place%buckets, spoil{Show: func(role dap.Role, aad []byte, s *dap.PlaintextInputShare) {
			wire := c.held[role][x.place].Present(c.base[role], arc.Bind(as[role], aad, s.Payload)).Append(nil)
			s.PrivateExtensions = with(wire)
			open[role] = slices.Concat(s.Payload, wire)
			c.at[role] = append(c.at[role], wire)
		}})
		p.accept(r)
		c.whose = append(c.whose, x.place)
		for role := range as {
			v, _, err := issuers[role].Verifier(t.Context(), deployment, uint64(coming))
			if err != nil {
				t.Fatal(err)
			}
			mark := v.Mark(must(arc.ReadPresentation(c.at[role][len(c.at[role])-1])).Tag())
			up := must(dap.AppendUploadRequest(nil, []dap.Report{r}))
			c.shown[role] = append(c.shown[role], seen{slices.Concat(up, open[role], mark[:]), p.clock.Now()})
		}
	}
	p.step()
	if n := p.helperCounts().Aggregated; n != uint64(devices) {
		t.Fatalf("the helper has counted %d of %d reports", n, devices)
	}
	p.audit()
	return c
}

// A coalition puts together what some parties see: of each visit, and of each report.
type coalition struct {
	multiples     func() map[[32]byte]int // see multiplesOf
	visits, shown []seen
	issued        [][]byte              // of each visit what issuers saw, in which elements lie
	at            map[dap.Role][][]byte // presentations
	keys          [][]byte
}

// together is what parties see who share it. of are the parties of visits, and roles whose
// reports and keys they have.
func (c *crowd) together(of []string, roles ...dap.Role) *coalition {
	x := &coalition{at: map[dap.Role][][]byte{}}
	join := func(to []seen, list []seen) []seen {
		if to == nil {
			to = make([]seen, len(list))
		}
		for i := range list {
			to[i] = seen{slices.Concat(to[i].bytes, list[i].bytes), list[i].at}
		}
		return to
	}
	for _, party := range of {
		x.visits = join(x.visits, c.visits[party])
	}
	x.issued = make([][]byte, c.devices)
	for _, role := range roles {
		x.shown = join(x.shown, c.shown[role])
		x.at[role] = c.at[role]
		x.keys = append(x.keys, c.keys[role])
		for i := range x.issued {
			x.issued[i] = append(x.issued[i], c.visits[role.String()][i].bytes...)
		}
	}
	return x
}

// ranked matches the first of one list with the first of another, and so on, in the order of
// a number of each.
func ranked(visits, shown []seen, of func(seen) int64) []int {
	by := func(list []seen) []int {
		order := make([]int, len(list))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(of(list[a]), of(list[b])) })
		return order
	}
	guesses, v := make([]int, len(shown)), by(visits)
	for k, i := range by(shown) {
		guesses[i] = v[k]
	}
	return guesses
}

// linkers say for each report which visit is its device's, -1 for none.
var linkers = map[string]func(x *coalition) []int{
	// Eight bytes in a row that one visit has and no other.
	"bytes": func(x *coalition) []int {
		whose := make(map[uint64]int)
		for i, v := range x.visits {
			for k := range len(v.bytes) - 7 {
				w := binary.BigEndian.Uint64(v.bytes[k:])
				if j, there := whose[w]; there && j != i {
					whose[w] = -1
				} else {
					whose[w] = i
				}
			}
		}
		guesses := make([]int, len(x.shown))
		for i, s := range x.shown {
			found := make(map[int]int)
			guesses[i] = -1
			for k := range len(s.bytes) - 7 {
				if j, there := whose[binary.BigEndian.Uint64(s.bytes[k:])]; there && j >= 0 {
					if found[j]++; guesses[i] < 0 || found[j] > found[guesses[i]] {
						guesses[i] = j
					}
				}
			}
		}
		return guesses
	},
	// The most bits alike, byte by byte, in what was issued.
	"bits": func(x *coalition) []int {
		guesses := make([]int, len(x.shown))
		for i := range guesses {
			best := -1
			for j, b := range x.issued {
				alike := 0
				for _, at := range x.at {
					for k := range at[i] {
						alike += 8 - bits.OnesCount8(at[i][k]^b[len(b)-len(at[i])+k])
					}
				}
				if alike > best {
					best, guesses[i] = alike, j
				}
			}
		}
		return guesses
	},
	"sizes": func(x *coalition) []int {
		return ranked(x.visits, x.shown, func(s seen) int64 { return int64(len(s.bytes)) })
	},
	"order": func(x *coalition) []int {
		return ranked(x.visits, x.shown, func(s seen) int64 { return s.at.UnixNano() })
	},
	"order, reversed": func(x *coalition) []int {
		guesses := ranked(x.visits, x.shown, func(s seen) int64 { return s.at.UnixNano() })
		for i := range guesses {
			guesses[i] = len(guesses) - 1 - guesses[i]
		}
		return guesses
	},
	"seconds in the minute": func(x *coalition) []int {
		return ranked(x.visits, x.shown, func(s seen) int64 { return s.at.UnixNano() % int64(time.Minute) })
	},
	"minutes in the hour": func(x *coalition) []int {
		return ranked(x.visits, x.shown, func(s seen) int64 { return s.at.UnixNano() % int64(time.Hour) })
	},
	// The visit that is nearest in the hour, which another report may have too.
	"nearest": func(x *coalition) []int {
		guesses := make([]int, len(x.shown))
		for i, s := range x.shown {
			best := time.Hour
			for j, v := range x.visits {
				d := time.Duration((s.at.UnixNano()-v.at.UnixNano())%int64(time.Hour)+int64(time.Hour)) % time.Hour
				if d = min(d, time.Hour-d); d < best {
					best, guesses[i] = d, j
				}
			}
		}
		return guesses
	},
	// An element of the presentation that is a multiple of one of the issuance.
	"algebra": func(x *coalition) []int {
		whose := x.multiples()
		guesses := make([]int, len(x.shown))
		for i := range guesses {
			guesses[i] = -1
			for _, at := range x.at {
				for k := 1; k < 1+7*33; k += 33 {
					if j, there := whose[[32]byte(at[i][k+1:k+33])]; there {
						guesses[i] = j
					}
				}
			}
		}
		return guesses
	},
}

// multiplesOf are the multiples of the elements of each issuance, by 1, 2, a scalar of an
// issuer's key or its inverse: whose they are, by x, so that signs do not matter.
func (x *coalition) multiplesOf() map[[32]byte]int {
	scalars := [][]byte{scalar(big.NewInt(1)), scalar(big.NewInt(2))}
	order, _ := new(big.Int).SetString("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16)
	for _, k := range x.keys {
		for at := 0; at < len(k); at += 32 {
			s := new(big.Int).SetBytes(k[at : at+32])
			scalars = append(scalars, scalar(s), scalar(new(big.Int).ModInverse(s, order)))
		}
	}
	whose := make(map[[32]byte]int)
	all := make(map[[33]byte]int) // elements, and how many visits have them
	for _, b := range x.issued {
		for e := range elements(b) {
			all[e]++
		}
	}
	for j, b := range x.issued {
		for e := range elements(b) {
			point, err := nistec.NewP256Point().SetBytes(e[:])
			if err != nil || all[e] > 1 {
				continue
			}
			for _, s := range scalars {
				product := must(nistec.NewP256Point().ScalarMult(point, s))
				whose[[32]byte(must(product.BytesX()))] = j
			}
		}
	}
	return whose
}

func scalar(n *big.Int) []byte { return n.FillBytes(make([]byte, 32)) }

// elements are what may be elements, anywhere.
func elements(b []byte) map[[33]byte]bool {
	all := make(map[[33]byte]bool)
	for k := 0; k+33 <= len(b); k++ {
		if b[k] == 2 || b[k] == 3 {
			if _, err := nistec.NewP256Point().SetBytes(b[k : k+33]); err == nil {
				all[[33]byte(b[k:k+33])] = true
			}
		}
	}
	return all
}

// TestVisitsAreNotLinkedToReports: over whole transcripts, every byte, size, order and
// instant, nobody who holds the attester and one aggregator, or both aggregators, with their
// issuers' keys, tells whose report is whose visit.
//
// By chance k of the guesses are right with probability 1/k! at most, whatever is guessed:
// each k different ones are right with probability (n-k)!/n!, and there are no more than
// n!/(n-k)!/k! of them. With 9 ways to guess for 3 coalitions one of them is right 14 times
// with probability 27/14! = 3.1e-10 at most. A way that is right for each device with
// probability 1/3 is right fewer than 14 times of 96 with probability 9e-6, and with 1/2
// with probability 6e-14; each way is tried on devices with the mistake that it looks for.
func TestVisitsAreNotLinkedToReports(t *testing.T) {
	const devices, tooMany = 96, 14
	cryptotest.SetGlobalRandom(t, 13)
	c := crowdOf(t, devices)
	right := func(x *coalition, how string) (n int) {
		for i, guess := range linkers[how](x) {
			if guess == c.whose[i] {
				n++
			}
		}
		return n
	}
	coalitions := map[string]func(c *crowd) *coalition{
		"attester and leader": func(c *crowd) *coalition { return c.together([]string{"attester", "leader"}, dap.RoleLeader) },
		"attester and helper": func(c *crowd) *coalition { return c.together([]string{"attester", "helper"}, dap.RoleHelper) },
		"both issuers": func(c *crowd) *coalition {
			return c.together([]string{"leader", "helper"}, dap.RoleLeader, dap.RoleHelper)
		},
	}
	known := make(map[string]func() map[[32]byte]int) // which no mistake below changes
	for who, of := range coalitions {
		known[who] = sync.OnceValue(of(c).multiplesOf)
	}
	for who, of := range coalitions {
		coalitions[who] = func(c *crowd) *coalition {
			x := of(c)
			x.multiples = known[who]
			return x
		}
	}
	for who, of := range coalitions {
		for how := range linkers {
			if n := right(of(c), how); n >= tooMany {
				t.Errorf("%s link %d of %d devices by %s", who, n, devices, how)
			}
		}
	}
	// The same with devices that make a mistake.
	careless := func(a byte) func(*coalition) {
		return func(x *coalition) {
			for role, at := range x.at {
				x.at[role] = slices.Clone(at)
				for i := range at {
					first := io.MultiReader(bytes.NewReader(append(make([]byte, 47), a)), rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}))
					x.at[role][i] = arctest.Present(c.held[role][c.whose[i]], c.base[role], arc.Bind(arc.Leader, []byte("aad"), []byte("share")), first).Append(nil)
					x.shown[i].bytes = append(x.shown[i].bytes, x.at[role][i]...)
				}
			}
		}
	}
	times := func(of func(v time.Time) time.Time) func(*coalition) {
		return func(x *coalition) {
			for i := range x.shown {
				x.shown[i].at = of(x.visits[c.whose[i]].at)
			}
		}
	}
	for _, m := range []struct {
		how, mistake string
		make         func(*coalition)
	}{
		{"bytes", "shows U as it was issued: a is 1", careless(1)},
		{"algebra", "shows 2 U: a is 2", careless(2)},
		{"bytes", "has 8 bytes of its request in its report", func(x *coalition) {
			for i := range x.shown {
				b := x.issued[c.whose[i]]
				x.shown[i].bytes = slices.Concat(x.shown[i].bytes, b[len(b)-64:len(b)-56])
			}
		}},
		{"bits", "shows what it was given, three bits of four", func(x *coalition) {
			for role, at := range x.at {
				x.at[role] = slices.Clone(at)
				for i := range at {
					b := x.issued[c.whose[i]]
					given := slices.Clone(b[len(b)-len(at[i]):])
					for k := range given {
						given[k] = given[k]&0x3f | at[i][k]&0xc0
					}
					x.at[role][i] = given
				}
			}
		}},
		{"sizes", "has a name of some length in both", func(x *coalition) {
			for j := range x.visits {
				x.visits[j].bytes = append(x.visits[j].bytes, make([]byte, 1000*j)...)
			}
			for i := range x.shown {
				x.shown[i].bytes = append(x.shown[i].bytes, make([]byte, 2*c.whose[i])...)
			}
		}},
		{"order", "reports as soon as those before it have", times(func(v time.Time) time.Time { return v.Add(day * time.Second) })},
		{"order, reversed", "reports once those behind it have", times(func(v time.Time) time.Time { return time.Unix(0, -v.UnixNano()) })},
		{"seconds in the minute", "reports at the second of its visit", func(x *coalition) {
			for i := range x.shown {
				v := x.visits[c.whose[i]].at
				x.shown[i].at = x.shown[i].at.Truncate(time.Minute).Add(v.Sub(v.Truncate(time.Minute)))
			}
		}},
		{"minutes in the hour", "reports at the minute of its visit", func(x *coalition) {
			for i := range x.shown {
				v := x.visits[c.whose[i]].at
				x.shown[i].at = x.shown[i].at.Truncate(time.Hour).Add(v.Sub(v.Truncate(time.Hour)))
			}
		}},
		{"nearest", "reports at the minute of its visit", func(x *coalition) {
			for i := range x.shown {
				v := x.visits[c.whose[i]].at
				x.shown[i].at = x.shown[i].at.Truncate(time.Hour).Add(v.Sub(v.Truncate(time.Hour)))
			}
		}},
	} {
		for who, of := range coalitions {
			x := of(c)
			m.make(x)
			if n := right(x, m.how); n < devices*9/10 {
				t.Errorf("%s find %d of %d devices by %s, each of which %s", who, n, devices, m.how, m.mistake)
			}
		}
	}
}
