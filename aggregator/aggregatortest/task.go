package aggregatortest

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

// Tokens of the parties of a [Task].
const (
	PeerToken      = "token-of-the-leader-at-the-helper"
	CollectorToken = "token-of-the-collector-at-the-leader"
)

// VerifyKeyID names the only verification key of a [Task].
const VerifyKeyID = 7

// A Task is a task with everything that its parties know: who tests one of them plays
// the others by it, one message at a time.
type Task struct {
	Config  *dap.TaskConfiguration
	ID      dap.TaskID
	Dialect dap.Dialect
	VDAF    vdaf.VDAF
	// Leader, Helper and Collector are what they open shares with.
	Leader, Helper, Collector *sealed.KeyPair
	VerifyKey                 [vdaf.VerifyKeySize]byte
}

// NewTask makes the keys of a task. Its verification key is always the same.
func NewTask(config *dap.TaskConfiguration, framing dap.Framing) (*Task, error) {
	t := &Task{
		Config: config, ID: config.TaskID(), Dialect: dap.Dialect{Version: config.Version, Framing: framing},
		VerifyKey: sha256.Sum256([]byte("the verification key of a test")),
	}
	for i, k := range []**sealed.KeyPair{&t.Leader, &t.Helper, &t.Collector} {
		var err error
		if *k, err = sealed.Generate(uint8(i+1), sealed.SuiteX25519); err != nil {
			return nil, err
		}
	}
	var err error
	t.VDAF, err = config.VDAF()
	return t, err
}

// Aggregator is the task as a leader or a helper is told of it, without noise.
func (t *Task) Aggregator() aggregator.Task {
	return aggregator.Task{
		Config: t.Config.Bytes(), Version: t.Dialect.Version, Framing: t.Dialect.Framing,
		VerifyKeys: map[uint8][vdaf.VerifyKeySize]byte{VerifyKeyID: t.VerifyKey}, PeerToken: PeerToken,
		CollectorToken: CollectorToken, CollectorHPKE: dap.NewHpkeConfig(t.Collector), Noise: noise.Zero{},
	}
}

// A Split makes the shares of a report, as vdaf.Client's Shard does of a measurement.
type Split func(ctx []byte, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error)

// A Spoil changes a report on its way from [Task.Report]. Fields that are zero change
// nothing.
type Spoil struct {
	ID       *dap.ReportID
	Time     *dap.Time
	Metadata func(*dap.ReportMetadata)
	// Context is the VDAF's, and Shard makes the shares, in place of what was asked for.
	Context []byte
	Shard   Split
	Share   func(*vdaf.Shares)
	Plain   func(role dap.Role, s *dap.PlaintextInputShare)
	// Show adds to a share what it shows, given what it is sealed to.
	Show   func(role dap.Role, aad []byte, s *dap.PlaintextInputShare)
	AAD    func([]byte) []byte
	To     []dap.HpkeConfig // of leader and helper, in place of their keys
	Report func(*dap.Report)
}

// Report makes a report of a time as a client does, but spoiled.
func (t *Task) Report(at dap.Time, split Split, s Spoil) (dap.Report, error) {
	r := dap.Report{Metadata: dap.ReportMetadata{Time: at}}
	if s.ID != nil {
		r.Metadata.ID = *s.ID
	} else {
		rand.Read(r.Metadata.ID[:])
	}
	if s.Time != nil {
		r.Metadata.Time = *s.Time
	}
	if s.Metadata != nil {
		s.Metadata(&r.Metadata)
	}
	ctx := t.Dialect.VDAFContext(t.ID)
	if s.Context != nil {
		ctx = s.Context
	}
	if s.Shard != nil {
		split = s.Shard
	}
	nonce := [vdaf.NonceSize]byte(r.Metadata.ID)
	shares, err := split(ctx, &nonce)
	if err != nil {
		return r, err
	}
	if s.Share != nil {
		s.Share(shares)
	}
	r.PublicShare = shares.Public
	for i, to := range []struct {
		role   dap.Role
		key    *sealed.KeyPair
		sealed *dap.HpkeCiphertext
	}{{dap.RoleLeader, t.Leader, &r.Leader}, {dap.RoleHelper, t.Helper, &r.Helper}} {
		share := dap.PlaintextInputShare{Payload: shares.Inputs[i]}
		if s.Plain != nil {
			s.Plain(to.role, &share)
		}
		if s.Show != nil {
			s.Show(to.role, t.aad(&r), &share)
		}
		plain, err := share.Append(nil)
		if err != nil {
			return r, err
		}
		aad := t.aad(&r)
		if s.AAD != nil {
			aad = s.AAD(aad)
		}
		key := dap.NewHpkeConfig(to.key)
		if s.To != nil {
			key = s.To[i]
		}
		if *to.sealed, err = dap.Seal(key, t.Dialect.InputShareInfo(to.role), aad, plain); err != nil {
			return r, err
		}
	}
	if s.Report != nil {
		s.Report(&r)
	}
	return r, nil
}

func (t *Task) aad(r *dap.Report) []byte {
	return dap.InputShareAAD(t.ID, t.Config.Bytes(), &r.Metadata, r.PublicShare)
}

// OpenShare opens one aggregator's share of a report.
func (t *Task) OpenShare(role dap.Role, r *dap.Report) (dap.PlaintextInputShare, error) {
	key, share := t.Leader, r.Leader
	if role == dap.RoleHelper {
		key, share = t.Helper, r.Helper
	}
	plain, err := key.Open(share.Enc, t.Dialect.InputShareInfo(role), t.aad(r), share.Payload)
	if err != nil {
		return dap.PlaintextInputShare{}, err
	}
	return dap.ReadPlaintextInputShare(plain)
}

// Inits is the leader's first step on reports: what a foreign leader would send. A report
// whose share the leader cannot open is sent with a share of nothing.
func (t *Task) Inits(reports ...dap.Report) []dap.VerifyInit {
	n, size := len(reports), t.VDAF.Sizes().VerifierShare
	in := vdaf.Reports{Nonces: make([][vdaf.NonceSize]byte, n), Public: make([][]byte, n), Inputs: make([][]byte, n)}
	errs, shares := make([]error, n), make([]byte, n*size)
	for i := range reports {
		in.Nonces[i], in.Public[i] = reports[i].Metadata.ID, reports[i].PublicShare
		var share dap.PlaintextInputShare
		share, errs[i] = t.OpenShare(dap.RoleLeader, &reports[i])
		in.Inputs[i] = share.Payload
	}
	t.VDAF.VerifyInit(t.VDAF.NewState(n), &t.VerifyKey, t.Dialect.VDAFContext(t.ID), 0, &in, shares, errs)
	out := make([]dap.VerifyInit, n)
	for i := range out {
		out[i] = dap.VerifyInit{ReportShare: reports[i].HelperShare(), Payload: vdaf.AppendPingPongInitialize(nil, shares[i*size:(i+1)*size])}
	}
	return out
}

// Open opens the answer to a collection, whose two shares add up to its result.
func (t *Task) Open(asked *dap.CollectionJobReq, answer []byte) (*dap.CollectionJobResp, []int64, error) {
	resp, err := dap.ReadCollectionJobResp(answer)
	if err != nil {
		return nil, nil, err
	}
	request, err := asked.Append(nil)
	if err != nil {
		return nil, nil, err
	}
	aad := dap.AggregateShareAAD(t.ID, t.Config.Bytes(), request)
	shares := make([]*vdaf.AggShare, 2)
	for i, from := range []struct {
		role  dap.Role
		share dap.HpkeCiphertext
	}{{dap.RoleLeader, resp.Leader}, {dap.RoleHelper, resp.Helper}} {
		plain, err := t.Collector.Open(from.share.Enc, t.Dialect.AggregateShareInfo(from.role), aad, from.share.Payload)
		if err == nil {
			shares[i], err = t.VDAF.ReadAggShare(plain)
		}
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("aggregatortest: the %v's share", from.role), err)
		}
	}
	sum, err := t.VDAF.Unshard(shares)
	return &resp, sum, err
}
