package release

// Bounds of what is spoken of: terms, their checker and the accountant refuse what is
// beyond. Each has bounds of its own beside, where it knows no theorem or would take too
// long.
const (
	// MaxEpsilon is the largest epsilon; beyond it nothing is protected.
	MaxEpsilon = 1e6
	// MaxLoss is the largest pure loss of one release.
	MaxLoss = 500
	// MaxAnswers is how many answers a response is among at most.
	MaxAnswers = 1 << 32
	// MinVariance and MaxVariance bound the parameter of discrete Gaussian noise.
	MinVariance, MaxVariance = 0.25, 1 << 62
	// MaxDraws is how many draws of noise are added up at most.
	MaxDraws = 1 << 30
	// MaxCount bounds releases, coordinates and senders of dummies of a term.
	MaxCount = 1 << 40
	// MaxShift is the most that one coordinate of a term moves by.
	MaxShift = 1 << 40
	// MaxReports bounds the reports that a certificate counts of a shuffle: of more, as
	// many.
	MaxReports = 1 << 32
)
