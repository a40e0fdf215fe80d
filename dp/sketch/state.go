package sketch

// State says what stands in a cell of a table.
type State string

const (
	// Value is an estimate that is told from none.
	Value State = "value"
	// BelowDetection is an estimate that noise does not let be told from none ([Detected]),
	// whose interval has the most that it can be; or a ratio of such estimates, of which the
	// interval alone is known.
	BelowDetection State = "below detection"
	// Suppressed is what the table does not show: a count below what its author wants
	// shown, a part of one that is, or an exact number about too few people.
	Suppressed State = "suppressed"
	// None is about nobody for certain, or a cell that was asked for and the table has not.
	None State = "none"
)

// Detected is [Value] where a count is above what noise of that deviation reaches, and
// [BelowDetection] where it is not. Without noise every count is a value.
func Detected(count, deviation, reach float64) State {
	if deviation > 0 && !(count > reach*deviation) {
		return BelowDetection
	}
	return Value
}
