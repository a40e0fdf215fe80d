package status

import "fmt"

// Lost are whole files that no row names, kept below lost/ in the aggregator's directory.
type Lost struct {
	Files  int   `json:"files"`
	Bytes  int64 `json:"bytes"`
	Slices int   `json:"slices,omitempty"` // copied out of logs, of acknowledged reports, at the leader
	Logs   int   `json:"logs,omitempty"`   // of acknowledged reports, at the leader
	Runs   int   `json:"runs,omitempty"`   // of the ids of reports that were aggregated
}

// Reports says whether acknowledged reports may be among the files.
func (l *Lost) Reports() bool { return l.Slices+l.Logs > 0 }

// Why is what they are, in words.
func (l *Lost) Why() string {
	return fmt.Sprintf("%d whole files (%d bytes) that nothing names were set aside: %d copies and %d logs of acknowledged reports, %d files of report ids, %d others",
		l.Files, l.Bytes, l.Slices, l.Logs, l.Runs, l.Files-l.Slices-l.Logs-l.Runs)
}

// Reasons name what is wrong with the aggregator as a whole, most urgent first.
func (s *Status) Reasons() []Reason {
	var rs []Reason
	if s.Clock != nil {
		rs = append(rs, Reason{s.Clock.Why(),
			"set the clock right, and everything goes on by itself; if it is right (the machine was off for long, say), stop the " +
				s.Role + ", type starling doctor --clock-is-right " + s.Role + ".toml and start it again"})
	}
	if s.NoRoom != "" {
		rs = append(rs, Reason{s.NoRoom + "; what comes meanwhile is told to come again, and nothing is lost",
			"make room on the disk, or find out with starling why what keeps reports from being verified; then it goes on by itself. " +
				"[limits] in " + s.Role + ".toml has the bounds"})
	}
	if s.NoMarks {
		rs = append(rs, noMarks(s.Role+".toml"))
	}
	rs = append(rs, s.quotas()...)
	rs = append(rs, s.ofReplicas()...)
	rs = append(rs, s.Published.reasons(s.Role)...)
	for i := range s.DataKeys {
		rs = append(rs, Reason{s.DataKeys[i].Why(),
			"put " + s.DataKeys[i].File + " back into the record of the " + s.Role + ", from where it went, and start it again"})
	}
	for i := range s.Damaged {
		rs = append(rs, Reason{s.Damaged[i].Why(),
			"find out what happened to the disk; if there is a copy of the log, see docs/recovery.md; to hear no more of it, remove it from lost/"})
	}
	// a damaged log is there already
	if s.Lost != nil && s.Lost.Slices+s.Lost.Logs > len(s.Damaged) {
		rs = append(rs, Reason{s.Lost.Why(),
			"stop the " + s.Role + ", type starling doctor --take-back " + s.Role + ".toml and start it again; what was aggregated before counts as a replay"})
	}
	return rs
}

// Strays tell of requests for tasks that are not served here. Anybody can make some up, so
// that they are no fault of the aggregator's.
func (s *Status) Strays() []Reason {
	n := s.RefusedRequests["unrecognizedTask"]
	if n == 0 {
		return nil
	}
	return []Reason{{fmt.Sprintf("%d requests since the start were for a task that is not served here, or not any more", n),
		"compare the id that starling recipe show prints of the recipe that was handed out with those of starling status; " +
			"name that recipe in [[tasks]] of leader and helper and start them again, or hand out the one that is served"}}
}
