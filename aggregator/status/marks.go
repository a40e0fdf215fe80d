package status

// NoMarks is what an aggregator on a database says that has no place of marks.
const NoMarks = "there is no place of marks, so a start cannot tell that the database was put back to an older state: " +
	"noise would be drawn again for what was released, and reports taken again that were counted"

// noMarks says what to do about it.
func noMarks(file string) Reason {
	return Reason{NoMarks, "name a directory or objects that all processes reach and no backup of the database has in [database.marks] of " + file +
		", in the place of none = true, and start all of them again"}
}
