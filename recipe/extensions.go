package recipe

import (
	"fmt"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
)

// addExtensions writes the extensions that the recipe has, types rising. All numbers are
// big-endian; Rational is { uint64 num, den; }:
//
//	population   struct { opaque statement<0..2^16-1>; uint64 expected; }
//	targeting    struct { Clause clauses<0..2^16-1>; opaque recipe[32], entry[32]; uint64 lower_bound, min_population; }
//	             Clause: struct { uint16 attribute; Value values<0..2^16-1>; }, Value: opaque<0..2^8-1>
//	tokens       struct { opaque attester<0..2^16-1>, key[32]; uint8 attestation; uint64 min_cohort; uint8 admission; }
//	rate         struct { uint64 devices, units; }
//	dummies      struct { Rational rate; uint64 senders, allowance; }
//	cover        struct { Rational rate; }
//	hpke-suite   uint16 kem, never that of X25519
//	relay        struct { opaque url<0..2^16-1>, gateway<0..2^16-1>; }
//	log          opaque origin[], to the end of the extension
//	round        struct { uint64 units; uint32 grace; }, absent for one unit and no grace
//	epoch        uint32, never 0
//	projection   struct { uint32 entries; opaque seed[32]; }
//	unit         struct { opaque name<1..2^8-1>; uint32 records; uint8 reduction; uint32 per_person; }, never that of DefaultUnit
//	server-keys  struct { opaque leader[32], helper[32], gateway<0..2^8-1>, collector[32]; uint32 epoch_length; }
//	wire-version uint16 draft of DAP, never 18
//	labels       Label labels[], to the end of the extension; Label: opaque<1..2^8-1>
//	views        struct { opaque round<1..2^8-1>; uint32 keep; View wider[]; }, to the end of the extension
//	             View: struct { opaque name<1..2^8-1>; uint32 rounds; Rational parameter; }
//	training     struct { opaque controller[32], terms[32]; }
func (r *Recipe) addExtensions(b *cryptobyte.Builder) {
	add := func(typ uint16, present bool, data cryptobyte.BuilderContinuation) {
		if present {
			b.AddUint16(typ)
			b.AddUint16LengthPrefixed(data)
		}
	}
	add(extPopulation, r.Population != nil, func(b *cryptobyte.Builder) {
		addBytes16(b, r.Population.Statement)
		b.AddUint64(r.Population.Expected)
	})
	add(extTargeting, r.Targeting != nil, func(b *cryptobyte.Builder) { addTargeting(b, r.Targeting) })
	add(extTokens, r.Tokens != nil, func(b *cryptobyte.Builder) { addTokens(b, r.Tokens) })
	add(extRate, r.Rate != nil, func(b *cryptobyte.Builder) {
		b.AddUint64(r.Rate.Devices)
		b.AddUint64(r.Rate.Units)
	})
	add(extDummies, r.Dummies != nil, func(b *cryptobyte.Builder) {
		addRational(b, r.Dummies.Rate)
		b.AddUint64(r.Dummies.Senders)
		b.AddUint64(r.Dummies.Allowance)
	})
	add(extCover, r.Cover != nil, func(b *cryptobyte.Builder) { addRational(b, r.Cover.Rate) })
	add(extHPKESuite, r.KEM != X25519, func(b *cryptobyte.Builder) { b.AddUint16(uint16(r.KEM)) })
	add(extRelay, r.Relay != nil, func(b *cryptobyte.Builder) {
		addBytes16(b, r.Relay.URL)
		addBytes16(b, r.Relay.Gateway)
	})
	add(extLog, r.Log != nil, func(b *cryptobyte.Builder) { b.AddBytes([]byte(r.Log.Origin)) })
	add(extRounds, r.Rounds != nil, func(b *cryptobyte.Builder) {
		b.AddUint64(r.Rounds.Units)
		b.AddUint32(r.Rounds.Grace)
	})
	add(extEpoch, r.Epoch != 0, func(b *cryptobyte.Builder) { b.AddUint32(r.Epoch) })
	add(extProjection, r.Projection != nil, func(b *cryptobyte.Builder) {
		b.AddUint32(r.Projection.Entries)
		b.AddBytes(r.Projection.Seed[:])
	})
	add(extUnit, r.Unit != nil, func(b *cryptobyte.Builder) { addUnit(b, r.Unit) })
	add(extServerKeys, r.ServerKeys != nil, func(b *cryptobyte.Builder) { addServerKeys(b, r.ServerKeys) })
	add(extVersion, r.DAP != dap.Draft18, func(b *cryptobyte.Builder) {
		if !r.DAP.Known() {
			b.SetError(&InvalidError{"dap", "is no draft that is spoken"})
			return
		}
		b.AddUint16(r.DAP.Number())
	})
	add(extLabels, r.Labels != nil, func(b *cryptobyte.Builder) { addLabels(b, r.Labels) })
	add(extViews, r.Views != nil, func(b *cryptobyte.Builder) { addViews(b, r.Views) })
	add(extTraining, r.Training != nil, func(b *cryptobyte.Builder) {
		b.AddBytes(r.Training.Controller[:])
		b.AddBytes(r.Training.Terms[:])
	})
}

func addTargeting(b *cryptobyte.Builder, t *Targeting) {
	addClauses(b, t.Clauses)
	b.AddBytes(t.Certificate.Recipe[:])
	b.AddBytes(t.Certificate.Entry[:])
	b.AddUint64(t.Certificate.LowerBound)
	b.AddUint64(t.Certificate.MinPopulation)
}

func addClauses(b *cryptobyte.Builder, list []Clause) {
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, c := range list {
			b.AddUint16(uint16(c.Attribute))
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
				for _, s := range c.Values {
					b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(s)) })
				}
			})
		}
	})
}

func (r *Recipe) readExtensions(d *decoder) {
	for last := -1; !d.s.Empty() && d.err == nil; {
		typ := d.u16("extension type")
		data := decoder{s: d.bytes16("extension data")}
		if d.err != nil {
			return
		}
		if int(typ) <= last {
			d.fail("extension types do not rise")
			return
		}
		last = int(typ)
		switch typ {
		case extPopulation:
			r.Population = &Population{Statement: string(data.bytes16("population")), Expected: data.u64("population")}
		case extTargeting:
			r.Targeting = readTargeting(&data)
		case extTokens:
			r.Tokens = readTokens(&data)
		case extRate:
			r.Rate = &Rate{Devices: data.u64("rate"), Units: data.u64("rate")}
		case extDummies:
			r.Dummies = &Dummies{Rate: data.rational("dummies"), Senders: data.u64("dummies"), Allowance: data.u64("dummies")}
		case extCover:
			r.Cover = &Cover{Rate: data.rational("cover")}
		case extHPKESuite:
			r.KEM = KEM(data.u16("hpke-suite"))
			if data.err == nil && !isKnown("kem", uint16(r.KEM)) {
				data.err = &UnknownError{"kem", uint16(r.KEM)}
			}
		case extRelay:
			r.Relay = &Relay{URL: string(data.bytes16("relay")), Gateway: string(data.bytes16("relay"))}
		case extLog:
			r.Log = &Log{Origin: string(data.s)}
			data.s = nil
		case extRounds:
			r.Rounds = &Rounds{Units: data.u64("round"), Grace: data.u32("round")}
		case extEpoch:
			if r.Epoch = data.u32("epoch"); data.err == nil && r.Epoch == 0 {
				data.fail("epoch 0 is said by saying nothing")
			}
		case extProjection:
			r.Projection = &Projection{Entries: data.u32("projection")}
			data.field("projection", func() bool { return data.s.CopyBytes(r.Projection.Seed[:]) })
		case extUnit:
			r.Unit = readUnit(&data)
		case extServerKeys:
			r.ServerKeys = readServerKeys(&data)
		case extVersion:
			draft := data.u16("wire-version")
			if data.err == nil && !isKnown("wire-version", draft) {
				data.err = &UnknownError{"wire-version", draft}
			} else if data.err == nil {
				r.DAP, data.err = dap.ParseVersion(draft)
			}
		case extLabels:
			r.Labels = readLabels(&data)
		case extViews:
			r.Views = readViews(&data)
		case extTraining:
			r.Training = readTraining(&data)
		default:
			d.err = &UnknownError{"extension", typ}
			return
		}
		data.end("extension")
		d.err = data.err
	}
}

func readTargeting(d *decoder) *Targeting {
	t := &Targeting{Clauses: readClauses(d)}
	d.field("certificate", func() bool { return d.s.CopyBytes(t.Certificate.Recipe[:]) })
	d.field("certificate", func() bool { return d.s.CopyBytes(t.Certificate.Entry[:]) })
	t.Certificate.LowerBound, t.Certificate.MinPopulation = d.u64("certificate"), d.u64("certificate")
	return t
}

func readClauses(d *decoder) (list []Clause) {
	clauses := decoder{s: d.bytes16("clauses")}
	for d.err == nil && clauses.err == nil && !clauses.s.Empty() {
		c := Clause{Attribute: Attribute(clauses.u16("attribute"))}
		if clauses.err == nil && !isKnown("attribute", uint16(c.Attribute)) {
			clauses.err = &UnknownError{"attribute", uint16(c.Attribute)}
		}
		values := decoder{s: clauses.bytes16("values")}
		for clauses.err == nil && values.err == nil && !values.s.Empty() {
			c.Values = append(c.Values, string(values.bytes8("value")))
		}
		if clauses.err == nil {
			clauses.err = values.err
		}
		if list = append(list, c); len(list) > MaxClauses {
			clauses.fail(fmt.Sprintf("more than %d clauses", MaxClauses))
		}
	}
	if d.err == nil {
		d.err = clauses.err
	}
	return list
}
