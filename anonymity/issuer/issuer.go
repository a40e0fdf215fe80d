package issuer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/internal/orders"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/signed"
)

// Terms are what the manifest of an epoch says of its issuers.
type Terms struct {
	// Key is the issuer's public key, as package arc encodes it.
	Key [arc.PublicKeySize]byte
	// Attester is the root key of who vouches for devices.
	Attester signed.PublicKey
	// Cap is how many requests are answered at most.
	Cap uint64
	// Begin is when devices may first show what they were given: from then on nothing is
	// issued.
	Begin time.Time
}

// names fails with [ErrKey] where the manifest names another key.
func (t *Terms) names(k *arc.PrivateKey, epoch uint32) error {
	if [arc.PublicKeySize]byte(k.PublicKey().Append(nil)) != t.Key {
		return fmt.Errorf("%w: the manifest of epoch %d names another", ErrKey, epoch)
	}
	return nil
}

// Options make an issuer.
type Options struct {
	// Role is that of the aggregator, or the hop of the shuffler, beside it. Required.
	Role signed.Role
	// Deployment is whose issuer it is. Required.
	Deployment [32]byte
	// Epoch is the length of an epoch. Required.
	Epoch time.Duration
	// Terms are those of an epoch, false where no manifest of it is known. Required, and
	// safe for concurrent use.
	Terms func(epoch uint32) (Terms, bool)
	// Keys is the directory of the keys, for one process at a time. Required.
	Keys disk.FS
	// Register is the directory of what was answered, for one process at a time. One of it
	// and Shared is required.
	Register disk.FS
	// Shared is the register of an issuer of several processes, each of which has the same
	// keys. It is closed with the issuer.
	Shared Register
	// Keep is how long after the last round of an epoch can have ended its key stays, for
	// reports that come late; default 48 h.
	Keep time.Duration
	// Requests are worked on at one time; default 64.
	Requests int
	// Now is the clock; default time.Now. Epochs begin by that of Shared, where it is set.
	Now func() time.Time
	// Log is told of what goes wrong; default none.
	Log *slog.Logger
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
}

const (
	defaultKeep     = 48 * time.Hour
	defaultRequests = 64
	registerSuffix  = ".answered"

	askTime    = 10 * time.Second // of a register that is not of this machine; an attester waits 15 s
	retireTime = 10 * time.Minute
)

// Failpoints of an issuer: before and after a request is in its register.
const (
	failBeforeEnter  = "issuer.before-enter"
	failBeforeAnswer = "issuer.after-enter-before-answer"
)

// Failpoints lists the failpoints of an issuer, without those of its logs.
func Failpoints() []string { return []string{failBeforeEnter, failBeforeAnswer} }

func (o *Options) validate() error {
	if err := beside(o.Role); err != nil {
		return err
	}
	switch {
	case o.Epoch < time.Second || o.Epoch%time.Second != 0:
		return errors.New("issuer: Epoch: whole seconds, 1 or more")
	case o.Terms == nil || o.Keys == nil:
		return errors.New("issuer: no terms, or no directory")
	case (o.Register == nil) == (o.Shared == nil):
		return errors.New("issuer: one of Register and Shared is required")
	case o.Keep < 0 || o.Requests < 0:
		return errors.New("issuer: negative")
	}
	if o.Keep == 0 {
		o.Keep = defaultKeep
	}
	if o.Requests == 0 {
		o.Requests = defaultRequests
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// An Issuer answers requests for credentials. It is an [http.Handler] and safe for
// concurrent use.
type Issuer struct {
	o        Options
	desk     *orders.Desk
	register Register // of the SHA-256 of each request

	mu        sync.Mutex
	verifiers map[uint32]*verifier
	// keys are those of files whose bytes have the digest: the public half, which a file
	// does not have, costs two multiplications.
	keys map[uint32]parsed
	// destroyed is the last epoch whose key went in this life, -1 for none: one that was read
	// while it was destroyed is not kept.
	destroyed int64
}

type parsed struct {
	file [sha256.Size]byte
	key  *arc.PrivateKey
}

// readKey is the key of an epoch, whose file is there, and read, whenever it is used.
func (x *Issuer) readKey(epoch uint32) (*arc.PrivateKey, error) {
	b, err := readFile(x.o.Keys, epoch)
	if err != nil {
		return nil, err
	}
	defer clear(b)
	digest := sha256.Sum256(b)
	x.mu.Lock()
	known := x.keys[epoch]
	x.mu.Unlock()
	if known.key != nil && known.file == digest {
		return known.key, nil
	}
	k, err := parseKey(b, x.o.Role, x.o.Deployment, epoch)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if int64(epoch) <= x.destroyed {
		return nil, fmt.Errorf("%w: %d", ErrNoKey, epoch)
	}
	x.keys[epoch] = parsed{digest, k}
	return k, nil
}

type verifier struct {
	verifier *arc.Verifier
	key      arc.KeyID
}

// New makes an issuer. Registers and keys are opened when they are first asked for.
func New(o Options) (*Issuer, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	x := &Issuer{o: o, desk: orders.NewDesk(o.Requests, int64(4*o.Requests*visit.OrderSize), o.Log), register: o.Shared, verifiers: make(map[uint32]*verifier), keys: make(map[uint32]parsed), destroyed: -1}
	if x.register == nil {
		x.register = &files{o.Keys, o.Register, o.Now, orders.NewRegisters(o.Register, registerSuffix, o.Failpoints)}
	}
	return x, nil
}

// Deployment is whose issuer it is.
func (x *Issuer) Deployment() [32]byte { return x.o.Deployment }

// Close closes the register. No request may be under way.
func (x *Issuer) Close() error { return x.register.Close() }

// Outcomes lists what becomes of requests.
func Outcomes() []string { return orders.Outcomes() }

// Outcome counts the requests that ended so since the start.
func (x *Issuer) Outcome(word string) uint64 { return x.desk.Outcome(word) }

// ServeHTTP answers POST of an order.
func (x *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.desk.Serve(w, r, orders.Kind{Media: visit.OrderMedia, Answer: visit.ResponseMedia, Most: visit.OrderSize,
		Do: func(ctx context.Context, b []byte) (answer []byte, repeated bool, err error) {
			o, err := visit.ReadOrder(b)
			if err != nil {
				return nil, false, &orders.Refusal{Outcome: orders.Malformed, Err: err}
			}
			return x.Issue(ctx, &o)
		}})
}

// ErrRegister: the register cannot be used now. A request may be in it or not; when it comes
// again it is answered, and entered once.
var ErrRegister = errors.New("issuer: the register cannot be used now")

// Issue answers an order, and says whether its request was answered before. It fails with
// *[orders.Refusal], with [ErrRegister] where the register does not answer in time or at all,
// and where the key cannot be used.
func (x *Issuer) Issue(ctx context.Context, o *visit.Order) (response []byte, repeated bool, err error) {
	refuse := func(word string, err error) ([]byte, bool, error) {
		return nil, false, &orders.Refusal{Outcome: word, Err: err}
	}
	terms, ok := x.o.Terms(o.Epoch)
	if !ok {
		return refuse(orders.Unknown, fmt.Errorf("no manifest of epoch %d is known", o.Epoch))
	}
	if err := o.Verify(terms.Attester, x.o.Role, x.o.Deployment, x.o.Now()); err != nil {
		return refuse(orders.Forbidden, err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	switch now, err := x.register.Now(ctx); {
	case err != nil:
		return nil, false, fmt.Errorf("%w: %w", ErrRegister, err)
	case !now.Before(terms.Begin):
		return refuse(orders.Begun, fmt.Errorf("epoch %d began at %s", o.Epoch, terms.Begin.Format(time.RFC3339)))
	}
	q, err := arc.ReadCredentialRequest(o.Request[:])
	if err != nil {
		return refuse(orders.Malformed, err)
	}
	k, err := x.readKey(o.Epoch)
	if err != nil {
		return nil, false, err
	}
	if err := terms.names(k, o.Epoch); err != nil {
		return nil, false, err
	}
	made, err := k.Respond(q)
	if err != nil {
		return refuse(orders.Malformed, err)
	}
	if err := x.o.Failpoints.Hit(failBeforeEnter); err != nil {
		return nil, false, err
	}
	repeated, entered, err := x.register.Enter(ctx, o.Epoch, sha256.Sum256(o.Request[:]), terms.Cap)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("%w: %w", ErrRegister, err)
	case !entered:
		// It may have begun, and been counted, since the register said what time it is.
		if _, counted, err := x.register.Count(ctx, o.Epoch, false); err != nil {
			return nil, false, fmt.Errorf("%w: %w", ErrRegister, err)
		} else if counted {
			return refuse(orders.Begun, fmt.Errorf("the requests of epoch %d are counted", o.Epoch))
		}
		return refuse(orders.Full, fmt.Errorf("%d requests of epoch %d are answered", terms.Cap, o.Epoch))
	}
	if err := x.o.Failpoints.Hit(failBeforeAnswer); err != nil {
		return nil, false, err
	}
	return made.Append(nil), repeated, nil
}

// ErrNotBegun: the epoch has not begun, and until it has its number is nobody's business.
var ErrNotBegun = errors.New("issuer: the epoch has not begun")

// Count is how many requests of an epoch were answered, once it has begun and nothing is
// issued any more; it is kept when the epoch's key is destroyed. It fails with
// [ErrNotBegun], with [ErrRegister], and where no manifest of the epoch is known.
func (x *Issuer) Count(ctx context.Context, epoch uint32) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	begun := false
	if terms, ok := x.o.Terms(epoch); ok {
		now, err := x.register.Now(ctx)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrRegister, err)
		}
		begun = !now.Before(terms.Begin)
	}
	n, counted, err := x.register.Count(ctx, epoch, begun)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrRegister, err)
	case !counted:
		return 0, fmt.Errorf("%w: %d", ErrNotBegun, epoch)
	}
	return n, nil
}

// Verifier is that of what devices show in an epoch of the deployment, with the name of its
// key. It fails with [ErrNoKey] where there never was such a key, or it was destroyed: then
// nothing that is shown can hold. A key that is missing between others, cannot be read, or is
// not the manifest's ([ErrKey]) is another error, of now; so is one that several processes
// have of an epoch whose manifest this one has not.
func (x *Issuer) Verifier(ctx context.Context, deployment [32]byte, epoch uint64) (*arc.Verifier, arc.KeyID, error) {
	e := uint32(epoch)
	if deployment != x.o.Deployment || uint64(e) != epoch {
		return nil, arc.KeyID{}, fmt.Errorf("%w: %d of deployment %x", ErrNoKey, epoch, deployment[:4])
	}
	x.mu.Lock()
	known := x.verifiers[e]
	x.mu.Unlock()
	if known != nil {
		return known.verifier, known.key, nil
	}
	k, err := x.readKey(e)
	if errors.Is(err, ErrNoKey) {
		return nil, arc.KeyID{}, x.missing(ctx, e)
	}
	if err != nil {
		return nil, arc.KeyID{}, err
	}
	// Another process's key, or one that was made twice, would have what honest devices show
	// refused for good.
	terms, ok := x.o.Terms(e)
	if ok {
		err = terms.names(k, e)
	} else if x.o.Shared != nil {
		err = fmt.Errorf("%w: no manifest of epoch %d is here, and another process may have the key that devices know", ErrKey, e)
	}
	if err != nil {
		return nil, arc.KeyID{}, err
	}
	id := k.PublicKey().ID()
	v := &verifier{k.Verifier(arc.NewRequestContext(arc.Role(x.o.Role), x.o.Deployment, epoch, id)), id}
	if !ok { // it may come yet, and name another
		return v.verifier, v.key, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if int64(e) > x.destroyed {
		x.verifiers[e] = v
	}
	return v.verifier, v.key, nil
}

// missing says of an epoch without a key whether it never had one, or has it no more.
func (x *Issuer) missing(ctx context.Context, epoch uint32) error {
	last, any, err := lastGone(x.o.Keys)
	if err != nil {
		return err
	}
	none := any && epoch <= last
	if !none {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		if none, err = x.register.None(ctx, epoch); err != nil {
			return fmt.Errorf("issuer: the key of epoch %d is not in its directory, and whether it is missed is not known: %w", epoch, err)
		}
	}
	if none {
		return fmt.Errorf("%w: %d", ErrNoKey, epoch)
	}
	return fmt.Errorf("issuer: the key of epoch %d is not in its directory", epoch)
}

// Keep is how long after the last round of an epoch can have ended its key stays.
func (x *Issuer) Keep() time.Duration { return x.o.Keep }

// Retire destroys the keys of epochs whose last round is long over, and what else is kept of
// them, and says which was the last of these, if there was any.
func (x *Issuer) Retire(ctx context.Context) (last uint32, any bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, retireTime)
	defer cancel()
	now, err := x.register.Now(ctx)
	if err != nil {
		return 0, false, fmt.Errorf("%w: %w", ErrRegister, err)
	}
	// A round may begin with the last second of its epoch and be as long as one.
	over := now.Add(-x.o.Keep).Unix()/int64(x.o.Epoch/time.Second) - 2
	list, err := epochs(x.o.Keys, keySuffix)
	if err != nil || over < 0 {
		return 0, false, err
	}
	for _, epoch := range list {
		if int64(epoch) <= over && (!any || epoch > last) {
			last, any = epoch, true
		}
	}
	if !any {
		// Requests that could not be forgotten when the last keys went are forgotten now.
		gone, any, err := lastGone(x.o.Keys)
		if err == nil && any {
			err = x.register.Forget(ctx, gone)
		}
		if err != nil {
			err = fmt.Errorf("issuer: %w", err)
		}
		return 0, false, err
	}
	for _, epoch := range list {
		if epoch > last {
			continue
		}
		if err := x.register.Keep(ctx, epoch); err != nil {
			return 0, false, fmt.Errorf("issuer: %w", err)
		}
	}
	if err := destroy(x.o.Keys, last); err != nil {
		return 0, false, err
	}
	x.mu.Lock()
	x.destroyed = max(x.destroyed, int64(last))
	maps.DeleteFunc(x.verifiers, func(epoch uint32, _ *verifier) bool { return epoch <= last })
	maps.DeleteFunc(x.keys, func(epoch uint32, _ parsed) bool { return epoch <= last })
	x.mu.Unlock()
	if err := x.register.Forget(ctx, last); err != nil {
		return last, true, fmt.Errorf("issuer: %w", err)
	}
	return last, true, nil
}
