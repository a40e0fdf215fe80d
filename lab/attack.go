package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// A forger sends what no honest client sends. It knows all that a client may know, and
// the wire format.
type forger struct {
	frame          *frame
	count          int // of malicious reports
	task           dap.TaskID
	config         *dap.TaskConfiguration
	leader, helper dap.HpkeConfig
	shard          vdaf.Client[int]
	reports        *url.URL // where the task's uploads go
}

// maxKeys bounds an aggregator's list of keys in bytes.
const maxKeys = 64 << 10

func newForger(ctx context.Context, among *frame, count int) (*forger, error) {
	f := &forger{frame: among, count: count}
	f.task, f.config = among.client.Task()
	if count == 0 {
		return f, nil
	}
	var err error
	switch c := among.recipe.Query.VDAFConfig().(type) {
	case dap.L1BoundSumConfig:
		if f.shard, err = newHealthForger(c); among.recipe.Query.Form() == recipe.Grouped {
			f.shard, err = newGroupsForger(c)
		}
	case dap.MultihotCountVecConfig:
		f.shard, err = newQuantilesForger(c)
	case dap.HistogramConfig:
		f.shard, err = prio3.NewHistogram(2, int(c.Length), int(c.ChunkLength))
	}
	if err != nil {
		return nil, err
	}
	return f, f.connect(ctx)
}

// connect fetches what the aggregators tell every client.
func (f *forger) connect(ctx context.Context) error {
	for _, a := range []struct {
		endpoint []byte
		key      *dap.HpkeConfig
	}{{f.config.Leader, &f.leader}, {f.config.Helper, &f.helper}} {
		base, err := dap.BaseURL(a.endpoint)
		if err != nil {
			return err
		}
		b, _, err := f.do(ctx, http.MethodGet, dap.ResourceURL(base, dap.HpkeConfigPath), "", nil)
		if err != nil {
			return err
		}
		list, err := dap.ReadHpkeConfigList(b)
		if err != nil {
			return err
		}
		if *a.key, err = list.Choose(); err != nil {
			return err
		}
	}
	base, err := dap.BaseURL(f.config.Leader)
	if err != nil {
		return err
	}
	f.reports = uploadsOf(base, f.task)
	return nil
}

// uploadsOf is where uploads for a task go.
func uploadsOf(leader *url.URL, task dap.TaskID) *url.URL {
	return dap.ResourceURL(leader, dap.CreationPath(task, dap.ReportsResource))
}

// An attack makes one bad report and says where it goes. A nil body means an upload of
// the report.
type attack struct {
	name string
	make func(f *forger, i int) (dap.Report, error)
	send func(f *forger, body []byte) (*url.URL, []byte, error)
}

// attacks are tried in turn.
var attacks = []attack{
	{name: "a proof of something else", make: func(f *forger, _ int) (dap.Report, error) {
		return f.forge(f.frame.asked, 3, func(s *vdaf.Shares) { s.Inputs[0][len(s.Inputs[0])-vdaf.SeedSize-1] ^= 1 })
	}},
	{name: "two buckets at once", make: func(f *forger, i int) (dap.Report, error) {
		return f.forge(f.frame.asked, i%10, func(s *vdaf.Shares) { addOne(s.Inputs[0], 10+i%11) })
	}},
	{name: "sealed to another key", make: func(f *forger, _ int) (dap.Report, error) {
		stranger, err := sealed.Generate(f.leader.ID, sealed.SuiteX25519)
		if err != nil {
			return dap.Report{}, err
		}
		g := *f
		g.leader = dap.NewHpkeConfig(stranger)
		return g.forge(f.frame.asked, 3, nil)
	}},
	{name: "a garbled ciphertext", make: func(f *forger, i int) (dap.Report, error) {
		r, err := f.forge(f.frame.asked, 3, nil)
		if err == nil {
			r.Helper.Payload[i%len(r.Helper.Payload)] ^= 0x40
		}
		return r, err
	}},
	{name: "a report sent twice"}, // made from an honest one
	{name: "a time outside the recipe's window", make: func(f *forger, _ int) (dap.Report, error) {
		return f.forge(f.frame.asked.Add(-2*f.frame.o.Precision), 3, nil)
	}},
	{name: "another task", make: func(f *forger, _ int) (dap.Report, error) {
		return f.forge(f.frame.asked, 3, nil)
	}, send: func(f *forger, body []byte) (*url.URL, []byte, error) {
		other := f.task
		other[0] ^= 1
		base, err := dap.BaseURL(f.config.Leader)
		return uploadsOf(base, other), body, err
	}},
	{name: "cut off in the middle", make: func(f *forger, _ int) (dap.Report, error) {
		return f.forge(f.frame.asked, 3, nil)
	}, send: func(f *forger, body []byte) (*url.URL, []byte, error) {
		return f.reports, body[:len(body)/2], nil
	}},
}

// attack sends the lab's malicious reports, each in a request of its own, and counts what
// is refused on the spot. honest are reports that have been acknowledged.
func (f *forger) attack(ctx context.Context, honest []dap.Report) error {
	for i := range f.count {
		a := attacks[i%len(attacks)]
		var r dap.Report
		var err error
		if a.make == nil {
			r = honest[i]
		} else if r, err = a.make(f, i); err != nil {
			return fmt.Errorf("forge %s: %w", a.name, err)
		}
		body, err := dap.AppendUploadRequest(nil, []dap.Report{r})
		if err != nil {
			return fmt.Errorf("forge %s: %w", a.name, err)
		}
		to := f.reports
		if a.send != nil {
			if to, body, err = a.send(f, body); err != nil {
				return fmt.Errorf("forge %s: %w", a.name, err)
			}
		}
		if err := f.upload(ctx, to, body); err != nil {
			return fmt.Errorf("send %s: %w", a.name, err)
		}
	}
	return nil
}

// upload sends one request. A report that the leader names as refused is counted by the
// leader; a request that it refuses as a whole is counted here; what it acknowledges is
// rejected later, or is a fault that the lab then shows.
func (f *forger) upload(ctx context.Context, to *url.URL, body []byte) error {
	answer, problem, err := f.do(ctx, http.MethodPost, to, dap.ContentType(dap.MediaUploadReq), body)
	if err != nil {
		return err
	}
	f.frame.sent++
	if problem != "" {
		f.frame.rejected[problem]++
		return nil
	}
	limits := dap.DefaultLimits()
	for _, err := range (dap.Dialect{Version: f.config.Version}).UploadErrors(answer, limits) {
		if err != nil {
			return err
		}
		return nil // one report, refused by name
	}
	f.frame.acknowledged++
	return nil
}

// do sends one request and returns the body of a success or the type of the problem.
func (f *forger) do(ctx context.Context, method string, to *url.URL, media string, body []byte) (answer []byte, problem string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	resp, err := f.frame.http.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxKeys))
	if err != nil {
		return nil, "", err
	}
	if resp.StatusCode/100 == 2 {
		return b, "", nil
	}
	var p dap.Problem
	if err := json.Unmarshal(b, &p); err != nil || p.Type == "" {
		return nil, fmt.Sprintf("status %d", resp.StatusCode), nil
	}
	return nil, string(p.Type), nil
}

// A split makes the shares of a report.
type split func(ctx []byte, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error)

// forge makes a report of a bucket as the client does, but spoils its shares before they
// are sealed.
func (f *forger) forge(t time.Time, bucket int, spoil func(*vdaf.Shares)) (dap.Report, error) {
	return f.seal(t, func(ctx []byte, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
		return f.shard.Shard(ctx, bucket%randhie.Buckets, nonce)
	}, spoil)
}

// seal is forge for any shares.
func (f *forger) seal(t time.Time, make split, spoil func(*vdaf.Shares)) (dap.Report, error) {
	unit, err := f.frame.recipe.TimePrecision.At(t)
	if err != nil {
		return dap.Report{}, err
	}
	r := dap.Report{Metadata: dap.ReportMetadata{Time: f.frame.recipe.ReportTime(unit)}}
	rand.Read(r.Metadata.ID[:])
	shares, err := make(f.config.Version.VDAFContext(f.task), (*[vdaf.NonceSize]byte)(&r.Metadata.ID))
	if err != nil {
		return dap.Report{}, err
	}
	if spoil != nil {
		spoil(shares)
	}
	r.PublicShare = shares.Public
	aad := dap.InputShareAAD(f.task, f.config.Bytes(), &r.Metadata, r.PublicShare)
	for i, to := range []struct {
		role dap.Role
		key  dap.HpkeConfig
		out  *dap.HpkeCiphertext
	}{{dap.RoleLeader, f.leader, &r.Leader}, {dap.RoleHelper, f.helper, &r.Helper}} {
		plain, err := dap.PlaintextInputShare{Payload: shares.Inputs[i]}.Append(nil)
		if err != nil {
			return dap.Report{}, err
		}
		if *to.out, err = dap.Seal(to.key, f.config.Version.InputShareInfo(to.role), aad, plain); err != nil {
			return dap.Report{}, err
		}
	}
	return r, nil
}

// addOne adds 1 to one element of the leader's measurement share: little-endian integers
// of 16 bytes modulo 2^128 - 7 * 2^66 + 1 (VDAF-18 section 6.1). The one element in 2^60
// or so that then is not reduced is refused too.
func addOne(share []byte, element int) {
	e := share[16*element : 16*element+16]
	low := binary.LittleEndian.Uint64(e) + 1
	binary.LittleEndian.PutUint64(e, low)
	if low == 0 {
		binary.LittleEndian.PutUint64(e[8:], binary.LittleEndian.Uint64(e[8:])+1)
	}
}
