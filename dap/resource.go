package dap

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// HpkeConfigPath is where an aggregator serves its [HpkeConfigList], relative to its base
// URL. All paths here are relative and have no leading slash, so that a base URL may have
// a path of its own: see [ResourceURL].
const HpkeConfigPath = "hpke_config"

// Collection is the last word of the path of a kind of resource in a task.
type Collection string

const (
	ReportsResource         Collection = "reports"          // leader: POST
	CollectionJobsResource  Collection = "collection_jobs"  // leader: POST; GET, DELETE of one
	AggregationJobsResource Collection = "aggregation_jobs" // helper: POST; POST, GET, DELETE of one
	AggregateSharesResource Collection = "aggregate_shares" // helper: POST; GET, DELETE of one
)

// CreationPath is the path to POST to: tasks/{task-id}/{collection}.
func CreationPath(task TaskID, c Collection) string {
	return "tasks/" + task.Base64() + "/" + string(c)
}

// ResourcePath is the path of one resource: tasks/{task-id}/{collection}/{id}. The id
// must satisfy [CheckResourceID].
func ResourcePath(task TaskID, c Collection, id string) string {
	return CreationPath(task, c) + "/" + id
}

// ResourceURL puts a path behind a base URL, with one slash between, whether or not the
// base ends in one. This mends the routing copy only; the endpoint that is bound stays as
// it was provisioned.
func ResourceURL(base *url.URL, path string) *url.URL { return base.JoinPath(path) }

// StepQuery is the query part of an aggregation job's URL, which says how many
// continuation steps the job has taken.
func StepQuery(step uint16) string { return "step=" + strconv.Itoa(int(step)) }

// ParseStep reads the value of the step parameter: a decimal without sign or leading zeros.
func ParseStep(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || s != strconv.FormatUint(n, 10) {
		return 0, fmt.Errorf("%w: not a step", ErrMalformed)
	}
	return uint16(n), nil
}

// LocationID takes the id from the Location that answers the creation of a resource at
// the path [CreationPath](task, c). The text and the examples of the draft disagree
// whether a Location starts with the base URL's path, and following one blindly would
// hand credentials to another origin; so only the tail is taken, and the caller puts it
// behind the base URL it knows. A tail of another task or collection is refused.
func LocationID(location string, task TaskID, c Collection) (id string, err error) {
	u, err := url.Parse(location)
	if err != nil {
		return "", fmt.Errorf("%w: location is not a URL", ErrMalformed)
	}
	dir, id, ok := cutLast(u.EscapedPath(), "/")
	if !ok || !strings.HasSuffix("/"+dir, "/"+CreationPath(task, c)) {
		return "", fmt.Errorf("%w: location is not of a resource in %s of the task", ErrMalformed, c)
	}
	return id, CheckResourceID(id)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
