package status

import "fmt"

// Lost are whole files that no row names, kept below lost/ in the aggregator's directory.
type Lost struct {
	Files    int   `json:"files"`
	Bytes    int64 `json:"bytes"`
	Segments int   `json:"segments,omitempty"` // of acknowledged reports, at the leader
	Logs     int   `json:"logs,omitempty"`     // of acknowledged reports, at the leader
	Runs     int   `json:"runs,omitempty"`     // of the ids of reports that were aggregated
}

// Reports says whether acknowledged reports may be among the files.
func (l *Lost) Reports() bool { return l.Segments+l.Logs > 0 }

// Why is what they are, in words.
func (l *Lost) Why() string {
	return fmt.Sprintf("%d whole files (%d bytes) that nothing names were set aside: %d segments and %d logs of acknowledged reports, %d files of report ids, %d others",
		l.Files, l.Bytes, l.Segments, l.Logs, l.Runs, l.Files-l.Segments-l.Logs-l.Runs)
}

// Reasons name what is wrong with the aggregator as a whole, most urgent first.
func (s *Status) Reasons() []Reason {
	var rs []Reason
	if s.Clock != nil {
		rs = append(rs, Reason{s.Clock.Why(),
			"set the clock right, and everything goes on by itself; if it is right (the machine was off for long, say), stop the " +
				s.Role + ", type starling doctor --clock-is-right " + s.Role + ".toml and start it again"})
	}
	for i := range s.DataKeys {
		rs = append(rs, Reason{s.DataKeys[i].Why(),
			"put " + s.DataKeys[i].File + " back into the record of the " + s.Role + ", from where it went, and start it again"})
	}
	for i := range s.Damaged {
		rs = append(rs, Reason{s.Damaged[i].Why(),
			"find out what happened to the disk; if there is a copy of the log, see docs/recovery.md; to hear no more of it, remove it from lost/"})
	}
	if s.Lost != nil && s.Lost.Segments+s.Lost.Logs > len(s.Damaged) { // a damaged log is there already
		rs = append(rs, Reason{s.Lost.Why(),
			"stop the " + s.Role + ", type starling doctor --take-back " + s.Role + ".toml and start it again; what was aggregated before counts as a replay"})
	}
	return rs
}
