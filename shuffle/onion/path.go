package onion

import (
	"encoding/base64"
	"strconv"
)

// Media types.
const (
	ContributionsMedia = "application/starling-contributions"
	KeysMedia          = "application/starling-shuffle-keys"
	ManifestMedia      = "application/starling-shuffle-manifest"
	RecordsMedia       = "application/starling-shuffle-records"
	ResultMedia        = "application/starling-shuffle-result"
)

// Problem types of refusals (RFC 9457) begin with ProblemPrefix.
const (
	ProblemPrefix        = "urn:starling:shuffle:"
	ProblemUnknownRecipe = ProblemPrefix + "unknown-recipe"
	ProblemNoRound       = ProblemPrefix + "round"
)

// path is that of a recipe's resources, relative to a party's base URL.
func path(recipe [32]byte, resource string) string {
	return "shuffles/" + base64.RawURLEncoding.EncodeToString(recipe[:]) + "/" + resource
}

// KeysPath is where a party has its signed [KeyList].
func KeysPath(recipe [32]byte) string { return path(recipe, "keys") }

// ContributionsPath is where hop 1, or the analyzer of the direct path, takes envelopes.
func ContributionsPath(recipe [32]byte) string { return path(recipe, "contributions") }

// BatchPath is where a party behind a hop takes the batch of a round.
func BatchPath(recipe [32]byte, round uint64) string {
	return path(recipe, "batches/"+strconv.FormatUint(round, 10))
}

// ResultPath is where the analyzer has the [Result] of a round.
func ResultPath(recipe [32]byte, round uint64) string {
	return path(recipe, "results/"+strconv.FormatUint(round, 10))
}
