package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/signed"
)

func keyAdmissionCommand() *command {
	return &command{
		name: "admission", args: "[--epoch N] [--rounds N] [--json] --keys DIR --out FILE RECIPE...",
		short: "Make a gateway's keys for an epoch, for the tokens that let devices into rounds",
		long: `Where a recipe asks for admission, every request of a device shows the gateway a token of its round, which the gateway gave it before
the epoch began, so that a round counts devices. Make the keys before the epoch's manifest, at the gateway, in the directory that its
admission names, and give FILE, which is public, to who makes the manifest (starling manifest new --admission). There is one key for each
round that begins in the epoch, and a device fetches a token under each. Without --epoch it is for the next one. An epoch has one list of keys for each recipe,
ever; the gateway destroys it when its last round is over. Name all recipes of the deployment that ask for admission.`,
		examples: [][2]string{{"starling key admission --keys epochs --out gateway.admission counted.starling", "for the next epoch"}},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			keys := flags.String("keys", "", "the directory that the gateway's admission names, `DIR`; required")
			out := flags.String("out", "", "write the digests of the keys to this `FILE`; required")
			epoch := flags.Uint("epoch", 0, "of epoch `N`; by default the next one")
			rounds := flags.Int("rounds", 0, "of the first `N` rounds alone that have not ended; others have no token, and nobody sends in them")
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				if len(args) == 0 || *keys == "" || *out == "" || *epoch > 1<<32-1 || *rounds < 0 {
					return usageOf("key admission", errors.New("starling key admission needs --keys, --out and recipes"))
				}
				d, err := deploymentOf(args)
				if err != nil {
					return err
				}
				if exists(*out) {
					return failf(exitInput, "name another file, or move this one away", "%s exists", *out)
				}
				number, now := uint32(*epoch), time.Now()
				if number == 0 {
					number = ohttp.EpochAt(now, d.Epoch) + 1
				}
				var named []ohttp.AdmissionKeys
				for _, path := range args {
					checked, err := deploy.OpenRecipe(path)
					if err != nil {
						return ofInput(err, noRecipe)
					}
					of := deploy.RoundKeys{Recipe: checked.Recipe(), Epoch: number, Rounds: *rounds}
					if number == ohttp.EpochAt(now, d.Epoch) {
						of.From = now
					}
					one, err := of.Make(*keys)
					switch {
					case errors.Is(err, deploy.ErrNoAdmission):
						return failf(exitInput, "starling recipe new --admission", "%s asks for no tokens", path)
					case errors.Is(err, admission.ErrKeys):
						return &failure{exitInput, err, "rounds are no longer than an epoch, and 2,000 have keys at most: --rounds"}
					case err != nil:
						return ofInput(err, "name a directory that nobody else writes to")
					}
					named = append(named, one)
				}
				sortAdmission(named)
				var text strings.Builder
				for _, k := range named {
					fmt.Fprintf(&text, "%x %x\n", k.Recipe, k.Keys)
				}
				if err := writeNew(*out, 0o644, []byte(text.String())); err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"epoch": number, "keys": *keys, "public": *out, "recipes": len(named)})
				}
				_, err = fmt.Fprintf(e.stdout, "the gateway's tokens, epoch %d: keys of %s in %s, their digests %s\n", number, counted(len(named), "recipe", "recipes"), *keys, *out)
				return err
			}
		},
	}
}

func sortAdmission(list []ohttp.AdmissionKeys) {
	slices.SortFunc(list, func(a, b ohttp.AdmissionKeys) int { return bytes.Compare(a.Recipe[:], b.Recipe[:]) })
}

// readAdmission reads what starling key admission wrote, which must be of the recipes that ask
// for admission, and of no others.
func readAdmission(path string, recipes []keyset.Recipe) (list []ohttp.AdmissionKeys, err error) {
	asks := make(map[[32]byte]bool)
	for _, r := range recipes {
		if r.Admission {
			asks[r.ID] = true
		}
	}
	if path == "" {
		if len(asks) > 0 {
			return nil, usageOf("manifest new", errors.New("a recipe asks for tokens of the gateway: starling manifest new needs --admission"))
		}
		return nil, nil
	}
	b, err := readLimited("key admission", path, ohttp.MaxAdmission*(2*64+2))
	if err != nil {
		return nil, err
	}
	const remake = "starling key admission --help"
	for line := range strings.Lines(string(b)) {
		var k ohttp.AdmissionKeys
		fields := strings.Fields(line)
		for i, into := range []*[32]byte{&k.Recipe, &k.Keys} {
			if len(fields) != 2 || len(fields[i]) != 2*len(into) {
				return nil, failf(exitInput, remake, "%s holds no digests of keys", path)
			}
			if _, err := hex.Decode(into[:], []byte(fields[i])); err != nil {
				return nil, failf(exitInput, remake, "%s: %w", path, err)
			}
		}
		if !asks[k.Recipe] {
			return nil, failf(exitInput, remake, "%s is of the recipe %x too, which is none of these or asks for no tokens", path, k.Recipe[:4])
		}
		delete(asks, k.Recipe)
		list = append(list, k)
	}
	if len(asks) > 0 {
		return nil, failf(exitInput, remake, "%s has no keys of %s that asks for tokens", path, counted(len(asks), "recipe", "recipes"))
	}
	sortAdmission(list)
	return list, nil
}

// attesterOf is the attester of a deployment whose recipes count devices; zero where none do.
func attesterOf(d *keyset.Deployment) (attester signed.PublicKey) {
	for _, r := range d.Recipes {
		if r.Attester != (signed.PublicKey{}) {
			attester = r.Attester
		}
	}
	return attester
}
