package recipe

import (
	"errors"
	"fmt"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// MaxSize bounds the bytes of a recipe.
const MaxSize = 1 << 16

// ErrMalformed: the bytes are not the one encoding of any recipe.
var ErrMalformed = errors.New("recipe: malformed")

// UnknownError: the recipe uses a choice that this build does not know, so it cannot be
// agreed to. It may be a recipe for a later version.
type UnknownError struct {
	Registry string // as in [Codepoint]
	Value    uint16
}

func (e *UnknownError) Error() string {
	if name := nameOf(e.Registry, e.Value); name != "" {
		return fmt.Sprintf("recipe: this build does not know %s %d (%s)", e.Registry, e.Value, name)
	}
	return fmt.Sprintf("recipe: this build does not know %s %d", e.Registry, e.Value)
}

// Append appends the recipe's bytes to dst:
//
//	struct {
//	  uint8 version = 1;
//	  opaque name<0..2^8-1>;
//	  opaque description<0..2^16-1>;
//	  Choice query, randomizer, participation, path, noise, claim;   // struct { uint8 tag; opaque config<0..2^16-1>; }
//	  uint64 min_batch;
//	  uint64 time_precision;                                         // seconds
//	  Choice window;
//	  Extension extensions<0..2^16-1>;                               // { uint16 type; opaque data<0..2^16-1>; }, types rising
//	} Recipe;
//
// It fails on a nil choice and on what no field holds; it does not validate.
func (r *Recipe) Append(dst []byte) ([]byte, error) {
	if r.Query == nil || r.Randomizer == nil || r.Participation == nil || r.Path == nil || r.Noise == nil ||
		r.Claim == nil || r.Window == nil {
		return nil, errors.New("recipe: a choice is missing")
	}
	start := len(dst)
	b := cryptobyte.NewBuilder(dst)
	b.AddUint8(Version)
	b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(r.Name)) })
	addBytes16(b, r.Description)
	addChoice(b, r.Query.query(), r.Query.append)
	addChoice(b, r.Randomizer.randomizer(), r.Randomizer.append)
	addChoice(b, r.Participation.participation(), r.Participation.append)
	addChoice(b, r.Path.path(), r.Path.append)
	addChoice(b, r.Noise.noise(), r.Noise.append)
	addChoice(b, r.Claim.claim(), func(b *cryptobyte.Builder) { addClaim(b, r.Claim) })
	b.AddUint64(r.MinBatch)
	b.AddUint64(uint64(r.TimePrecision))
	addChoice(b, r.Window.window(), func(b *cryptobyte.Builder) { addWindow(b, r.Window) })
	b.AddUint16LengthPrefixed(r.addExtensions)
	out, err := b.Bytes()
	if err != nil {
		return nil, fmt.Errorf("recipe: encode: %w", err)
	}
	if len(out)-start > MaxSize {
		return nil, fmt.Errorf("recipe: longer than %d bytes", MaxSize)
	}
	return out, nil
}

func addBytes16(b *cryptobyte.Builder, s string) {
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(s)) })
}

func addChoice(b *cryptobyte.Builder, tag uint8, config cryptobyte.BuilderContinuation) {
	b.AddUint8(tag)
	b.AddUint16LengthPrefixed(config)
}

func addClaim(b *cryptobyte.Builder, c Claim) {
	switch c := c.(type) {
	case NoClaim:
	case ApproxDP:
		addDecimal(b, c.Epsilon)
		addDecimal(b, c.Delta)
		b.AddUint8(uint8(c.Neighbours))
		b.AddUint8(c.HonestServers)
		b.AddUint32(c.Rounds)
	default:
		panic(fmt.Sprintf("recipe: internal error: no encoding for claim %T", c))
	}
}

func addWindow(b *cryptobyte.Builder, w Window) {
	switch w := w.(type) {
	case NoWindow:
	case Between:
		b.AddUint64(uint64(w.Start))
		b.AddUint64(uint64(w.End))
	default:
		panic(fmt.Sprintf("recipe: internal error: no encoding for window %T", w))
	}
}

func addRational(b *cryptobyte.Builder, r Rational) {
	if !r.Valid() {
		b.SetError(fmt.Errorf("%s is not a positive fraction in lowest terms", r))
	}
	b.AddUint64(r.Num)
	b.AddUint64(r.Den)
}

func addDecimal(b *cryptobyte.Builder, d Decimal) {
	if !d.Valid() {
		b.SetError(fmt.Errorf("%d*10^-%d is not a decimal in its shortest form", d.Coefficient, d.Scale))
	}
	b.AddUint64(d.Coefficient)
	b.AddUint8(d.Scale)
}

// Read reads exactly one recipe. Bytes that are no encoding give [ErrMalformed], and a
// choice or extension that this build does not know gives an [UnknownError]. It does not
// validate: a recipe that was read may still be refused by [Recipe.Validate].
func Read(b []byte) (*Recipe, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrMalformed, MaxSize)
	}
	d := decoder{s: b}
	// text, which no version will ever begin with
	if v := d.u8("version"); d.err == nil && v >= ' ' {
		return nil, fmt.Errorf("%w: these are not the bytes of a recipe", ErrMalformed)
	} else if d.err == nil && v != Version {
		return nil, &UnknownError{"version", uint16(v)}
	}
	r := new(Recipe)
	r.Name = string(d.bytes8("name"))
	r.Description = string(d.bytes16("description"))
	r.Query = readChoice(&d, "query", readQuery)
	r.Randomizer = readChoice(&d, "randomizer", readRandomizer)
	r.Participation = readChoice(&d, "participation", readParticipation)
	r.Path = readChoice(&d, "path", readPath)
	r.Noise = readChoice(&d, "noise", readNoise)
	r.Claim = readChoice(&d, "claim", readClaim)
	r.MinBatch = d.u64("min_batch")
	r.TimePrecision = dap.TimePrecision(d.u64("time_precision"))
	r.Window = readChoice(&d, "window", readWindow)
	ext := decoder{s: d.bytes16("extensions")}
	d.end("recipe")
	if d.err != nil {
		return nil, d.err
	}
	r.readExtensions(&ext)
	if ext.err != nil {
		return nil, ext.err
	}
	return r, nil
}

// readChoice reads {tag, config}; read returns false for a tag it does not know.
func readChoice[T any](d *decoder, registry string, read func(tag uint8, config *decoder) (T, bool)) T {
	var none T
	tag := d.u8(registry)
	config := decoder{s: d.bytes16(registry)}
	if d.err != nil {
		return none
	}
	v, ok := read(tag, &config)
	if !ok {
		d.err = &UnknownError{registry, uint16(tag)}
		return none
	}
	config.end(registry)
	if d.err = config.err; d.err != nil {
		return none
	}
	return v
}

func readClaim(tag uint8, d *decoder) (Claim, bool) {
	switch tag {
	case tagClaimNone:
		return NoClaim{}, true
	case tagApproxDP:
		return ApproxDP{
			Epsilon:       d.decimal("epsilon"),
			Delta:         d.decimal("delta"),
			Neighbours:    release.Neighbours(d.known("neighbours")),
			HonestServers: d.u8("honest_servers"),
			Rounds:        d.u32("rounds"),
		}, true
	}
	return nil, false
}

func readWindow(tag uint8, d *decoder) (Window, bool) {
	switch tag {
	case tagWindowNone:
		return NoWindow{}, true
	case tagWindowInterval:
		return Between{Start: dap.Time(d.u64("start")), End: dap.Time(d.u64("end"))}, true
	}
	return nil, false
}

// decoder reads fields until the first error, which it keeps.
type decoder struct {
	s   cryptobyte.String
	err error
}

func (d *decoder) fail(why string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrMalformed, why)
	}
}

// field runs one read; after an error, or when the read fails, ok is false and the value
// read is not to be used.
func (d *decoder) field(name string, read func() bool) (ok bool) {
	if d.err != nil {
		return false
	}
	if !read() {
		d.fail("truncated at " + name)
		return false
	}
	return true
}

func (d *decoder) u8(name string) (v uint8) {
	d.field(name, func() bool { return d.s.ReadUint8(&v) })
	return v
}

// known reads a byte that must be a codepoint of the registry that this version encodes.
func (d *decoder) known(registry string) uint8 {
	v := d.u8(registry)
	if d.err == nil && !isKnown(registry, uint16(v)) {
		d.err = &UnknownError{registry, uint16(v)}
	}
	return v
}

func (d *decoder) u16(name string) (v uint16) {
	d.field(name, func() bool { return d.s.ReadUint16(&v) })
	return v
}

func (d *decoder) u32(name string) (v uint32) {
	d.field(name, func() bool { return d.s.ReadUint32(&v) })
	return v
}

func (d *decoder) u64(name string) (v uint64) {
	d.field(name, func() bool { return d.s.ReadUint64(&v) })
	return v
}

func (d *decoder) bytes8(name string) (v cryptobyte.String) {
	d.field(name, func() bool { return d.s.ReadUint8LengthPrefixed(&v) })
	return v
}

func (d *decoder) bytes16(name string) (v cryptobyte.String) {
	d.field(name, func() bool { return d.s.ReadUint16LengthPrefixed(&v) })
	return v
}

func (d *decoder) rational(name string) Rational {
	r := Rational{Num: d.u64(name), Den: d.u64(name)}
	if d.err == nil && !r.Valid() {
		d.fail(name + " is not a positive fraction in lowest terms")
	}
	return r
}

func (d *decoder) decimal(name string) Decimal {
	v := Decimal{Coefficient: d.u64(name), Scale: d.u8(name)}
	if d.err == nil && !v.Valid() {
		d.fail(name + " is not a decimal in its shortest form")
	}
	return v
}

func (d *decoder) end(what string) {
	if d.err == nil && !d.s.Empty() {
		d.fail("trailing bytes after " + what)
	}
}
