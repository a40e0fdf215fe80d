package recipe

import (
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// Domain strings. Each begins with "starling " and appears in docs/registry.md; a test
// compares the two.
const (
	// IDDomain opens the hash that names a recipe.
	IDDomain = "starling recipe v1"
)

// Version is the first byte of every recipe of this version.
const Version = 1

// Tags of the six choices and of the window. Zero is never a tag, so that zeroed bytes
// are no recipe.
const (
	tagCount     = 1
	tagSum       = 2
	tagMean      = 3
	tagHistogram = 4
	tagMultihot  = 5
	tagSumVec    = 6
	tagVector    = 7
	tagGroupSums = 8

	tagHitters    = 9
	tagL1BoundSum = 10
	tagQuantiles  = 11
	tagHierarchy  = 12
	tagDistinct   = 13
	tagNorm       = 14

	tagRandomizerNone = 1
	tagDeviceGaussian = 2
	tagKRR            = 3
	tagRAPPOR         = 4
	tagPGR            = 5

	tagQA              = 6
	tagRandomizedGroup = 7

	tagCloak = 8

	tagAlways          = 1
	tagBernoulli       = 2
	tagImportance      = 3
	tagCheckInFixed    = 4
	tagCheckInAveraged = 5
	tagCheckInSliding  = 6
	tagDonationTime    = 7

	tagTwoServer = 1
	tagShuffled  = 2
	tagDirect    = 3

	tagNoiseNone          = 1
	tagDiscreteGaussian   = 2
	tagDiscreteLaplace    = 3
	tagCorrelatedGaussian = 4

	tagClaimNone = 1
	tagApproxDP  = 2

	tagWindowNone     = 1
	tagWindowInterval = 2
)

// Extension types.
const (
	extPopulation = 1
	extTargeting  = 2
	extTokens     = 3
	extRate       = 4
	extDummies    = 5
	extCover      = 6
	extHPKESuite  = 7
	extRelay      = 8
	extLog        = 10
	extRounds     = 11
	extEpoch      = 12
	extProjection = 13
	extUnit       = 14
	extServerKeys = 15
	extVersion    = 16
	extLabels     = 17
	extViews      = 18
	extTraining   = 19
)

// A Codepoint is one number of the recipe's wire format.
type Codepoint struct {
	Registry string // which union or list: "query", "noise", "extension", ...
	Value    uint16
	Name     string
	// Known: this version encodes it. The others are reserved, so that two later features
	// never take one number.
	Known bool
}

// Codepoints lists every number that is taken, known or reserved, in the order of
// docs/registry.md.
func Codepoints() []Codepoint {
	return append([]Codepoint(nil), codepoints...)
}

var codepoints = []Codepoint{
	{"query", tagCount, "count", true},
	{"query", tagSum, "sum", true},
	{"query", tagMean, "mean", true},
	{"query", tagHistogram, "histogram", true},
	{"query", tagMultihot, "multihot", true},
	{"query", tagSumVec, "sumvec", true},
	{"query", tagVector, "vector", true},
	{"query", tagGroupSums, "group-sums", true},
	{"query", tagHitters, "heavy-hitters", true},
	{"query", tagL1BoundSum, "l1-bound-sum", true},
	{"query", tagQuantiles, "quantiles", true},
	{"query", tagHierarchy, "hierarchy", true},
	{"query", tagDistinct, "distinct", true},
	{"query", tagNorm, "norm", true},

	{"randomizer", tagRandomizerNone, "none", true},
	{"randomizer", tagDeviceGaussian, "gaussian", true},
	{"randomizer", tagKRR, "krr", true},
	{"randomizer", tagRAPPOR, "rappor", true},
	{"randomizer", tagPGR, "pgr", true},
	{"randomizer", tagQA, "qa", true},
	{"randomizer", tagRandomizedGroup, "randomized-group", true},
	{"randomizer", tagCloak, "cloak", true},

	{"participation", tagAlways, "always", true},
	{"participation", tagBernoulli, "bernoulli", true},
	{"participation", tagImportance, "importance", true},
	{"participation", tagCheckInFixed, "checkin-fixed", true},
	{"participation", tagCheckInAveraged, "checkin-averaged", true},
	{"participation", tagCheckInSliding, "checkin-sliding", true},
	{"participation", tagDonationTime, "donation-time", true},

	{"path", tagTwoServer, "two-server", true},
	{"path", tagShuffled, "shuffled", true},
	{"path", tagDirect, "direct", true},

	{"shuffle-mode", uint16(CountedMode), "counted", true},
	{"shuffle-mode", uint16(TokensMode), "tokens", true},

	{"cloak", uint16(ModernCloak), "modern", true},
	{"cloak", uint16(SingleUserCloak), "single-user", true},
	{"cloak", uint16(SumPreservingCloak), "sum-preserving", true},

	{"group-asks", uint16(AskSums), "sums", true},
	{"group-asks", uint16(AskSizes), "sizes", true},

	{"noise", tagNoiseNone, "none", true},
	{"noise", tagDiscreteGaussian, "discrete-gaussian", true},
	{"noise", tagDiscreteLaplace, "discrete-laplace", true},
	{"noise", tagCorrelatedGaussian, "correlated-gaussian", true},

	{"claim", tagClaimNone, "none", true},
	{"claim", tagApproxDP, "approximate-dp", true},

	{"window", tagWindowNone, "none", true},
	{"window", tagWindowInterval, "interval", true},

	{"neighbours", uint16(release.AddRemove), "add-remove", true},
	{"neighbours", uint16(release.ReplaceOne), "replace", true},
	{"neighbours", uint16(release.ZeroOut), "zero-out", true},

	{"batch-mode", uint16(dap.TimeInterval), "time-interval", true},
	{"batch-mode", uint16(dap.LeaderSelected), "leader-selected", true},

	{"noise-share", uint16(DrawsAll), "all", true},
	{"noise-share", uint16(DrawsHalf), "half", true},

	{"vector-proof", uint16(Pine32), "pine32", true},
	{"vector-proof", uint16(Pine40), "pine40", true},
	{"vector-proof", uint16(Pine64), "pine64", true},
	{"vector-proof", uint16(Pine128), "pine128", true},
	{"vector-proof", uint16(L2Fixed16), "l2fixed16", true},
	{"vector-proof", uint16(L2Fixed32), "l2fixed32", true},

	{"rounding", uint16(RoundNearest), "nearest", true},
	{"rounding", uint16(RoundRandomly), "random", true},
	{"rounding", uint16(RoundTowardsZero), "towards-zero", true},

	{"extension", extPopulation, "population", true},
	{"extension", extTargeting, "targeting", true},
	{"extension", extTokens, "tokens", true},
	{"extension", extRate, "rate", true},
	{"extension", extDummies, "dummies", true},
	{"extension", extCover, "cover", true},
	{"extension", extHPKESuite, "hpke-suite", true},
	{"extension", extRelay, "relay", true},
	{"extension", 9, "attestation", false},
	{"extension", extLog, "log", true},
	{"extension", extRounds, "round", true},
	{"extension", extEpoch, "epoch", true},
	{"extension", extProjection, "projection", true},
	{"extension", extUnit, "unit", true},
	{"extension", extServerKeys, "server-keys", true},
	{"extension", extVersion, "wire-version", true},
	{"extension", extLabels, "labels", true},
	{"extension", extViews, "views", true},
	{"extension", extTraining, "training", true},

	{"reduction", uint16(FirstRecord), "first", true},
	{"reduction", uint16(LastRecord), "last", true},
	{"reduction", uint16(ClippedSum), "clipped-sum", true},
	{"reduction", uint16(SharedSum), "shared-sum", true},

	{"kem", uint16(XWing), "x-wing", true},

	{"attestation", uint16(Codes), "codes", true},
	{"attestation", uint16(OIDC), "oidc", true},
	{"attestation", uint16(MTLS), "mtls", true},

	{"wire-version", dap.Draft19.Number(), dap.Draft19.String(), true},

	{"attribute", uint16(Platform), "platform", true},
	{"attribute", uint16(OSVersion), "os-version", true},
	{"attribute", uint16(AppVersion), "app-version", true},
	{"attribute", uint16(Channel), "release-channel", true},
	{"attribute", uint16(Language), "language", true},
	{"attribute", uint16(DeviceClass), "device-class", true},
	// Banned for ever: what is sensitive, and what tells one device or person from all
	// others.
	{"attribute", 0x8001, "device-id", false},
	{"attribute", 0x8002, "network-address", false},
	{"attribute", 0x8003, "place", false},
	{"attribute", 0x8004, "age", false},
	{"attribute", 0x8005, "gender", false},
	{"attribute", 0x8006, "health", false},
	{"attribute", 0x8007, "ethnicity", false},
	{"attribute", 0x8008, "religion", false},
	{"attribute", 0x8009, "politics", false},
	{"attribute", 0x800a, "sexuality", false},
	{"attribute", 0x800b, "contacts", false},
	{"attribute", 0x800c, "account-name", false},
}

func find(registry string, value uint16) (Codepoint, bool) {
	for _, c := range codepoints {
		if c.Registry == registry && c.Value == value {
			return c, true
		}
	}
	return Codepoint{}, false
}

// nameOf returns the name of a codepoint, or "" when nobody has taken it.
func nameOf(registry string, value uint16) string {
	c, _ := find(registry, value)
	return c.Name
}

func isKnown(registry string, value uint16) bool {
	c, _ := find(registry, value)
	return c.Known
}
