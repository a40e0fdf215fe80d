package main

import (
	"errors"
	"flag"
	"fmt"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// pathFlags are the flags of `recipe new` and `recipe plan` about a path without two
// servers.
type pathFlags struct {
	path, hop1, hop2, analyzer, hop1Key, hop2Key, analyzerKey, mode *string
}

const pathHelp = `
On --path shuffled two hops mix the messages of all devices, and on --path direct an analyzer reads each report: only devices
blur answers there, by --randomizer krr, rappor or pgr, for sums by group by qa[:EPSILON[:VALUES[:ASKS]]] or
randomized-group[:EPSILON[:VALUES[:ASKS]]], EPSILON of one answer, or calibrated to --epsilon, VALUES on either side of 0 that numbers are
rounded to, ASKS sums or sizes, or, for all queries of whole numbers behind a shuffler, by
cloak[:KIND[:USERS[:HONEST[:EPSILON[:BATCHES]]]]]: KIND is modern, or for one number single-user or sum-preserving, USERS the most
devices of a batch, HONEST how many of --min-batch are counted on, and BATCHES in how many independent ones a round is collected.
With --mode tokens contributions show credentials to both hops, of an --attester, and need a --log. recipe show tells what these paths do not give, and has a table of all.`

func newPathFlags(flags *flag.FlagSet) *pathFlags {
	return &pathFlags{
		path:        flags.String("path", "two-server", "how reports travel, `PATH`: two-server, shuffled or direct"),
		hop1:        flags.String("hop1", "", "with --path shuffled: base `URL` of the first hop"),
		hop2:        flags.String("hop2", "", "with --path shuffled: base `URL` of the second hop"),
		analyzer:    flags.String("analyzer", "", "with --path shuffled or direct: base `URL` of the analyzer"),
		hop1Key:     flags.String("hop1-key", "", "the first hop's root key: its name among the anchors, or its digits: `KEY`"),
		hop2Key:     flags.String("hop2-key", "", "the second hop's root key: `KEY`"),
		mode:        flags.String("mode", recipe.CountedMode.String(), "with --path shuffled, `MODE`: counted, where the first hop is trusted not to pad, or tokens, where none is"),
		analyzerKey: flags.String("analyzer-key", "", "the analyzer's root key: `KEY`"),
	}
}

// set fills in the path, and says whether it is another than that of two servers. Keys are
// those of keys' flags.
func (f *pathFlags) set(o *account.Options, keys *keyFlags) (other bool, err error) {
	both := *f.hop1 != "" && *f.hop2 != "" && *f.hop1Key != "" && *f.hop2Key != ""
	none := *f.hop1 == "" && *f.hop2 == "" && *f.hop1Key == "" && *f.hop2Key == ""
	switch *f.path {
	case "two-server":
		if !none || *f.analyzer != "" || *f.analyzerKey != "" {
			return false, errors.New("--hop1, --hop2, --analyzer and their keys go with --path shuffled, or for the analyzer direct")
		}
		if *f.mode != recipe.CountedMode.String() {
			return false, errors.New("--mode goes with --path shuffled; between two servers --attester alone has devices counted")
		}
		return false, nil
	case "shuffled":
		if !both {
			return true, errors.New("--path shuffled wants --hop1, --hop1-key, --hop2 and --hop2-key")
		}
	case "direct":
		if !none {
			return true, errors.New("--hop1, --hop2 and their keys go with --path shuffled")
		}
	default:
		return true, fmt.Errorf("--path is %q, want two-server, shuffled or direct", *f.path)
	}
	if *f.analyzer == "" || *f.analyzerKey == "" {
		return true, fmt.Errorf("--path %s wants --analyzer and --analyzer-key", *f.path)
	}
	if o.Leader != "" || o.Helper != "" || *keys.leader != "" || *keys.helper != "" || *keys.collector != "" || *keys.admission {
		return true, errors.New("--leader, --helper, their keys, --collector and --admission go with --path two-server")
	}
	tokens := *f.mode == recipe.TokensMode.String()
	if !tokens && *f.mode != recipe.CountedMode.String() || tokens && *f.path != "shuffled" {
		return true, fmt.Errorf("--mode is %q, want counted, or with --path shuffled tokens", *f.mode)
	}
	if tokens != (*keys.attester != "") || tokens != (*keys.attesterKey != "") || tokens && *keys.log == "" {
		return true, errors.New("--mode tokens goes with --attester, --attester-key and --log")
	}
	if (*keys.gateway != "") != (o.Relay != nil) {
		return true, errors.New("--gateway-key goes with --relay")
	}
	first, second, analyzer := recipe.Party{URL: *f.hop1}, recipe.Party{URL: *f.hop2}, recipe.Party{URL: *f.analyzer}
	var gateway, attester signed.PublicKey
	if err := keys.read([]typedKey{{*f.hop1Key, &first.Key}, {*f.hop2Key, &second.Key}, {*f.analyzerKey, &analyzer.Key}, {*keys.gateway, &gateway}, {*keys.attesterKey, &attester}}); err != nil {
		return true, err
	}
	if *keys.log != "" {
		o.Log = &recipe.Log{Origin: *keys.log}
	}
	if *f.path == "direct" {
		o.Path = recipe.Direct{Analyzer: analyzer, Gateway: gateway}
	} else {
		p := recipe.Shuffled{First: first, Second: second, Analyzer: analyzer, Gateway: gateway, Mode: recipe.CountedMode}
		if tokens {
			kind, err := keys.kind()
			if err != nil {
				return true, err
			}
			p.Mode, p.EpochLength = recipe.TokensMode, uint32(*keys.days)*86400
			o.Tokens = &recipe.Tokens{Attester: *keys.attester, Key: attester, Attestation: kind, MinCohort: *keys.cohort}
		}
		o.Path = p
	}
	return true, nil
}
