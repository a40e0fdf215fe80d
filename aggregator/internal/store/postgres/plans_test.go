//go:build postgres

package postgres_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// plans are the statements that run all the time, by which index, with arguments. None of
// them reads a table from end to end.
var plans = map[string]struct {
	by   string
	args []any
}{
	"task":          {"task_task_id_key", []any{make([]byte, 32)}},
	"share-task":    {"task_task_id_key", []any{make([]byte, 32)}},
	"task-in-turn":  {"task_task_id_key", []any{make([]byte, 32)}},
	"exclude-task":  {"task_task_id_key", []any{make([]byte, 32)}},
	"task-config":   {"task_task_id_key", []any{make([]byte, 32)}},
	"put-task":      {"Insert on", []any{make([]byte, 32), []byte{}, int64(1), int64(300), int64(5)}},
	"registration":  {"registration_pkey", []any{int64(7)}},
	"registrations": {"registration_change_key", []any{int64(7), int64(16)}},
	"put-registration": {"Insert on", []any{int64(7), int64(30001), int64(1), []byte{}, make([]byte, 32), []byte{}, make([]byte, 32), "", int64(1), "x",
		int64(1), int64(1), int64(1), int64(0), false}},
	"amend-registration":      {"registration_pkey", []any{int64(7), int64(9), []byte{}}},
	"close-registration":      {"registration_pkey", []any{int64(7), int64(9), int64(1), "x", "y"}},
	"count-live":              {"brought_", []any{"peer", int64(7)}},
	"count-added":             {"brought_added", []any{"peer", int64(7)}},
	"sweep-registration":      {"registration_pkey", []any{int64(7)}},
	"find-resource":           {"resource_task_kind_resource_id_key", []any{int64(7), int64(1), "7"}},
	"lock-resource":           {"resource_task_kind_resource_id_key", []any{int64(7), int64(1), "7"}},
	"find-digest":             {"resource_task_kind_digest_key", []any{int64(7), int64(1), make([]byte, 32)}},
	"count-pending":           {"resource_pending", []any{int64(7), int64(2), int64(1024)}},
	"pending-resources":       {"resource_pending", []any{int64(1), int64(16)}},
	"generation":              {"generation_pkey", []any{int64(7), int64(1), make([]byte, 32)}},
	"put-resource":            {"Insert on", []any{int64(7), int64(1), "a", make([]byte, 32), []byte{}, []byte(nil), int64(0)}},
	"drop-resource":           {"resource_pkey", []any{int64(7)}},
	"count-deleted":           {"Insert on", []any{int64(7), int64(1), make([]byte, 32), true}},
	"resource-failed":         {"resource_pkey", []any{int64(7), ""}},
	"forget-refused-shares":   {"resource_task_kind_", []any{int64(7), int64(64)}},
	"drop-hold":               {"hold_pkey", []any{int64(7)}},
	"find-hold":               {"hold_pkey", []any{int64(7)}},
	"interval-closed":         {"release_", []any{int64(7), int64(10), int64(20)}},
	"id-closed":               {"release_task_view_batch_id_key", []any{int64(7), make([]byte, 32)}},
	"job-ready":               {"resource_pkey", []any{int64(7), []byte{}, true}},
	"job-advance":             {"resource_pkey", []any{int64(7), int64(1), make([]byte, 32), []byte{}, true}},
	"unfinished-jobs":         {"resource_unfinished", []any{int64(10)}},
	"answers-of-task":         {"resource_", []any{int64(7), int64(0), int64(16)}},
	"replay-turn":             {"replay_pkey", []any{int64(7)}},
	"drop-expired-flights":    {"flight_task", []any{int64(7), make([]byte, 16)}},
	"flights":                 {"flight_task", []any{int64(7)}},
	"put-flight":              {"Insert on", []any{make([]byte, 16), int64(7), make([]byte, 16), true, int64(60)}},
	"drop-flight":             {"flight_pkey", []any{make([]byte, 16)}},
	"put-run":                 {"Insert on", []any{int64(7), int64(1), make([]byte, 16), make([]byte, 48), []byte{}, make([]byte, 16), make([]byte, 32), make([]byte, 32)}},
	"run-ids":                 {"run_task", []any{int64(7)}},
	"run-heads":               {"run_", []any{int64(7), []int64{7, 1007}}},
	"run-pages":               {"run_", []any{int64(7), []int64{7, 1007}, []int64{0, 0}}},
	"run-ids-of":              {"run_", []any{int64(7), []int64{7, 1007}}},
	"drop-runs":               {"run_", []any{int64(7), []int64{7, 1007}}},
	"shut-buckets":            {"release_interval", []any{int64(7), []int64{10, 20}}},
	"shut-ids":                {"release_task_view_batch_id_key", []any{int64(7), [][]byte{make([]byte, 32)}}},
	"put-buckets":             {"Insert on", []any{int64(7), []int64{10, 20}}},
	"put-ids":                 {"Insert on", []any{int64(7), [][]byte{make([]byte, 32)}}},
	"find-buckets":            {"batch_task_bucket_key", []any{int64(7), []int64{10, 20}}},
	"find-ids":                {"batch_task_batch_id_key", []any{int64(7), [][]byte{make([]byte, 32)}}},
	"put-part":                {"Insert on", []any{int64(7), int64(1), int64(1), int64(1), make([]byte, 32), int64(1), true, []byte{}, make([]byte, 32), int64(32)}},
	"put-tally":               {"Insert on", []any{int64(7), []int64{0}, []int64{0}, []int64{5}, int64(128)}},
	"sum-tallies":             {"tally_task", []any{int64(7)}},
	"batch-name":              {"batch_pkey", []any{int64(7)}},
	"parts-to-sum":            {"part_batch", []any{int64(7), int64(64)}},
	"drop-parts-of":           {"part_pkey", []any{[]int64{7, 8}}},
	"latest-noise":            {"noise_", []any{int64(7)}},
	"put-noise":               {"Insert on", []any{int64(7), int64(30001), int64(30002), int64(5), int64(1), true}},
	"put-noise-part":          {"Insert on", []any{int64(7), int64(9), []byte{}}},
	"noise-part":              {"noise_part_pkey", []any{int64(7), int64(0)}},
	"drop-noise":              {"noise_pkey", []any{[]int64{7, 8}}},
	"sweep-slices":            {"slice_", []any{int64(7), int64(500)}},
	"sweep-jobs":              {"job_", []any{int64(7), int64(500)}},
	"sweep-conduct":           {"conduct_pkey", []any{int64(7)}},
	"sweep-runs":              {"run_", []any{int64(7), int64(500)}},
	"begin-spent-rounds":      {"Insert on", []any{int64(7), []int64{1}}},
	"lock-spent-rounds":       {"spent_round_", []any{int64(7), []int64{1}}},
	"save-spent-rounds":       {"spent_round_", []any{int64(7), []int64{1}, []int64{1}, [][]byte{make([]byte, 32)}}},
	"spent-round":             {"spent_round_", []any{int64(7), int64(1)}},
	"spent-rounds":            {"spent_round_", []any{int64(7), int64(16)}},
	"forget-round":            {"spent_run_", []any{int64(7), int64(1), int64(500)}},
	"round-over":              {"spent_round_", []any{int64(7), int64(1), int64(2)}},
	"put-round-over":          {"Insert on", []any{int64(7), int64(1), int64(2)}},
	"sweep-spent-rounds":      {"spent_round_", []any{int64(7), int64(500)}},
	"spent-in-rounds":         {"spent_round_", []any{int64(7), int64(1), int64(20)}},
	"sweep-spent-runs":        {"spent_run_", []any{int64(7), int64(500)}},
	"share-spent-round":       {"spent_round_", []any{int64(7), int64(1)}},
	"exclude-spent-round":     {"spent_round_", []any{int64(7), int64(1)}},
	"put-spent-run":           {"Insert on", []any{int64(7), int64(1), int64(1), make([]byte, 32), make([]byte, 48), []byte{}, make([]byte, 16), make([]byte, 32), make([]byte, 32)}},
	"spent-runs":              {"spent_run_round", []any{int64(7), int64(1)}},
	"spent-run-heads":         {"spent_run_", []any{int64(7), int64(1), []int64{7, 1007}}},
	"spent-run-pages":         {"spent_run_", []any{int64(7), int64(1), []int64{7, 1007}, []int64{0, 0}}},
	"spent-run-entries":       {"spent_run_", []any{int64(7), int64(1), []int64{7, 1007}}},
	"drop-spent-runs":         {"spent_run_", []any{int64(7), int64(1), []int64{7, 1007}}},
	"sweep-noise":             {"noise_", []any{int64(7), int64(500)}},
	"sweep-resources":         {"resource_", []any{int64(7), int64(500)}},
	"sweep-generations":       {"generation_pkey", []any{int64(7), int64(500)}},
	"sweep-parts":             {"part_", []any{int64(7), int64(500)}},
	"sweep-batches":           {"batch_", []any{int64(7), int64(500)}},
	"counts":                  {"tally_task", []any{int64(7)}},
	"collected":               {"release_", []any{int64(7)}},
	"newest-batches":          {"batch_task_", []any{int64(7), int64(16)}},
	"parts":                   {"part_batch", []any{[]int64{7, 8}}},
	"shares":                  {"part_batch", []any{[]int64{7, 8}}},
	"batches-in-interval":     {"batch_task_bucket_key", []any{int64(7), int64(10), int64(20)}},
	"batch-of-id":             {"batch_task_batch_id_key", []any{int64(7), make([]byte, 32)}},
	"close-batches":           {"batch_pkey", []any{[]int64{7}, []int64{5}, []int64{1}, []int64{1}, [][]byte{make([]byte, 32)}}},
	"drop-parts":              {"part_batch", []any{[]int64{7, 8}}},
	"bucket-state":            {"release_interval", []any{int64(7), int64(10)}},
	"put-view":                {"Insert on", []any{make([]byte, 32), int64(2), int64(28)}},
	"views-of":                {"task_view_", []any{int64(7)}},
	"views-ended":             {"view_end_pkey", []any{int64(7)}},
	"end-views":               {"Insert on", []any{int64(7), int64(28)}},
	"shut-buckets-of-views":   {"release_interval", []any{int64(7), []int64{10, 20}}},
	"bucket-state-of-views":   {"release_interval", []any{int64(7), int64(10)}},
	"shut-places-of-views":    {"release_interval", []any{[]int64{7, 8}, []int64{10, 20}}},
	"view-closed":             {"release_", []any{int64(7), int64(1), int64(14), int64(20)}},
	"drawn":                   {"release_", []any{int64(7), int64(14), int64(20)}},
	"batches-in-span":         {"batch_task_bucket_key", []any{int64(7), int64(14), int64(20)}},
	"held-before":             {"hold_task", []any{int64(7), int64(20)}},
	"drop-slices-before":      {"slice_bucket", []any{int64(7), int64(20)}},
	"batches-before":          {"batch_task_bucket_key", []any{int64(7), int64(20)}},
	"collected-of-views":      {"release_", []any{int64(7)}},
	"audit-released-in-views": {"release_", []any{int64(7)}},
	"put-release-of-view": {"Insert on", []any{int64(30000), int64(7), int64(3), "r", int64(14), int64(20), []byte(nil), int64(5), make([]byte, 32), "",
		int64(1), make([]byte, 32), make([]byte, 32), make([]byte, 32), int64(1), int64(3)}},
	"id-state":             {"release_task_view_batch_id_key", []any{int64(7), make([]byte, 32)}},
	"last-release-of-task": {"release_task_position_key", []any{int64(7)}},
	"release-at":           {"release_task_position_key", []any{int64(7), int64(1)}},
	"releases-to-mark":     {"release_", []any{int64(7), int64(16)}},
	"releases-after":       {"release_", []any{int64(7), int64(1), int64(16)}},
	"frozen":               {"hold_", []any{int64(7)}},
	"put-release": {"Insert on", []any{int64(30000), int64(7), int64(3), "r", int64(10), int64(20), []byte(nil), int64(5), make([]byte, 32), "",
		int64(1), make([]byte, 32), make([]byte, 32), make([]byte, 32)}},
	"resource-ready":    {"resource_pkey", []any{int64(7), []byte{}, make([]byte, 32)}},
	"put-kept":          {"Insert on", []any{int64(7), int64(1), make([]byte, 32), []byte{}, "", []byte{}, true}},
	"find-kept":         {"kept_pkey", []any{int64(7)}},
	"kept-resealed":     {"kept_pkey", []any{int64(7), make([]byte, 32), make([]byte, 32)}},
	"response-resealed": {"resource_pkey", []any{int64(7), []byte{}, []byte{}, make([]byte, 32)}},
	"put-reseal":        {"Insert on", []any{int64(7), int64(3), "r", int64(0), make([]byte, 32), make([]byte, 32), int64(0)}},
	"kept-under":        {"part_data_key", []any{int64(7)}},
	"put-task-secret":   {"Insert on", []any{make([]byte, 32), strings.Repeat("0", 15) + "1", make([]byte, 60)}},
	"drop-task-secret":  {"task_secret_pkey", []any{int64(7)}},
	"replica-lives":     {"replica_pkey", []any{strings.Repeat("0", 32)}},
	"share-tasks":       {"task_task_id_key", []any{[][]byte{make([]byte, 32)}}},
	"shut-places":       {"release_interval", []any{[]int64{7, 8}, []int64{10, 20}}},
	"put-object":        {"Insert on", []any{"rows/a.obj", int64(1), []byte{1}}},
	"take-object":       {"object_name_key", []any{"rows/a.obj", int64(1)}},
	"put-upload": {"Insert on", []any{"rows/a.obj", int64(1), []byte{1}, [][]byte{{1}}, []int64{1}, [][]byte{make([]byte, 32)}, []int64{7}, []int64{10}, []int64{1},
		[]int64{0}, []int64{0}, []int64{7}, []int64{0}, []int64{0}, []int64{5}}},
	"put-tombstones":         {"Insert on", []any{[][]byte{{'a'}}}},
	"slices-of-jobs":         {"slice_job", []any{[]int64{7, 8}}},
	"slices-after":           {"slice_pkey", []any{int64(7), int64(16)}},
	"end-slices":             {"slice_job", []any{int64(7)}},
	"end-those-slices":       {"slice_", []any{int64(7), []int64{7, 8}}},
	"endings":                {"ending_pkey", []any{int64(512)}},
	"drop-endings":           {"ending_pkey", []any{[]int64{7, 8}}},
	"drop-objects":           {"slice_object", []any{[]int64{7, 8}}},
	"tombstones":             {"tombstone_since", []any{int64(1), int64(16)}},
	"drop-tombstone":         {"tombstone_pkey", []any{"a"}},
	"objects-after":          {"slice_object", []any{int64(7), int64(1), int64(16)}},
	"idle-slices-of-objects": {"slice_object", []any{[]int64{7, 8}, int64(16)}},
	"buried-object":          {"tombstone_pkey", []any{"a"}},
	"put-strays":             {"tombstone_pkey", []any{[][]byte{{'a'}}}},
	"drop-known-strays":      {"stray_pkey", []any{"a", "b", [][]byte{{'a'}}}},
	"old-strays":             {"stray_pkey", []any{"a", "b", int64(1)}},
	"claim-strays":           {"Insert on", []any{[][]byte{{'a'}}}},
	"drop-claims":            {"object_", []any{[]int64{7, 8}}},
	"drop-strays":            {"stray_pkey", []any{[][]byte{{'a'}}}},
	"drop-unnamed-rows":      {"object_unnamed", []any{int64(1), int64(16)}},
	"find-slice":             {"slice_object", []any{"a", []byte{1}, make([]byte, 32)}},
	"idle-job":               {"job_", []any{int64(7)}},
	"find-object":            {"object_name_key", []any{"a"}},
	"move-slice":             {"slice_pkey", []any{int64(7), int64(8), []byte{1}, int64(1)}},
	"note-ending":            {"Insert on", []any{int64(7)}},
	"put-body":               {"Insert on", []any{"a", []byte{1}}},
	"read-body":              {"object_name_key", []any{"a", int64(1), int64(1)}},
	"size-of-body":           {"object_name_key", []any{"a"}},
	"drop-body":              {"object_name_key", []any{"a"}},
	"list-bodies":            {"object_name_key", []any{"rows/", "", "rows/z", int64(16)}},
	"claimable":              {"slice_free", []any{int64(1000), int64(2000), [][]byte{}, []int64{}, []int64{}, int64(256)}},
	"due-jobs":               {"job_due", []any{int64(1000), int64(2000), [][]byte{}, []int64{}, []int64{}, int64(4)}},
	"drop-flight-of-lease":   {"flight_pkey", []any{int64(7)}},
	"lease-job":              {"job_", []any{int64(7), make([]byte, 16), int64(0)}},
	"claimable-after":        {"slice_free", []any{int64(1000), [][]byte{}, []int64{}, []int64{}}},
	"newest-slice":           {"slice_free", []any{}},
	"oldest-slice":           {"slice_free", []any{[][]byte{}, []int64{}, []int64{}, int64(256)}},
	"oldest-slice-after":     {"slice_free", []any{[][]byte{}, []int64{}, []int64{}, int64(1000)}},
	"free-slices":            {"slice_bucket", []any{int64(7), int64(10), int64(16)}},
	"turn-of-batches":        {"task_", []any{int64(7)}},
	"open-batches":           {"part_batch", []any{int64(7), int64(5), int64(64)}},
	"put-batch-id":           {"Insert on", []any{int64(7), make([]byte, 32)}},
	"put-job":                {"Insert on", []any{int64(7), int64(10), nil, int64(1), make([]byte, 16), int64(0)}},
	"take-slices":            {"slice_pkey", []any{int64(7), []int64{7, 8}}},
	"answers-of-job":         {"answer_pkey", []any{int64(7)}},
	"leased-job":             {"job_", []any{int64(7), make([]byte, 16)}},
	"lock-leased-job":        {"job_", []any{int64(7), make([]byte, 16)}},
	"find-slices-of-job":     {"slice_job", []any{int64(7)}},
	"shrink-job":             {"job_", []any{int64(7), int64(1)}},
	"put-aside":              {"Insert on", []any{int64(7), int64(10), int64(1), "why"}},
	"save-sent":              {"job_", []any{int64(7), make([]byte, 32), []byte{1}, "", int64(0), int64(0)}},
	"shared-job":             {"job_location", []any{int64(7), "a", int64(8)}},
	"put-answer":             {"Insert on", []any{int64(7), int64(0), []byte{}}},
	"drop-answers":           {"answer_pkey", []any{int64(7)}},
	"renew-job":              {"job_", []any{int64(7), make([]byte, 16), int64(0)}},
	"retry-job":              {"job_", []any{int64(7), int64(0), ""}},
	"quarantine-job":         {"job_", []any{int64(7), ""}},
	"park-job":               {"job_", []any{int64(7), ""}},
	"drop-job":               {"job_", []any{int64(7)}},
	"parked-jobs":            {"job_task", []any{[]int64{7, 8}}},
	"lock-free-slices":       {"slice_", []any{int64(7)}},
	"lock-unsent-jobs":       {"job_task", []any{int64(7)}},
	"give-up-slices":         {"slice_", []any{int64(7), []int64{7, 8}}},
	"give-up-jobs":           {"job_", []any{[]int64{7, 8}}},
	"unpark-job":             {"job_", []any{int64(7)}},
	"hurry-jobs":             {"job_task", []any{int64(7)}},
	"sent-jobs":              {"job_task", []any{int64(7)}},
	"stuck-jobs":             {"job_task", []any{int64(7)}},
	"conduct":                {"conduct_pkey", []any{int64(7)}},
	"lock-conduct":           {"conduct_pkey", []any{int64(7)}},
	"begin-conduct":          {"Insert on", []any{int64(7)}},
	"save-conduct":           {"conduct_pkey", []any{int64(7), true, int64(0), int64(0), int64(0)}},
	"hold-task":              {"Insert on", []any{int64(7), int64(0), false, ""}},
	"forgive-task":           {"conduct_pkey", []any{int64(7)}},
	"selection-of":           {"resource_pkey", []any{int64(7)}},
	"hold-of":                {"hold_pkey", []any{int64(7)}},
	"put-hold":               {"Insert on", []any{int64(7), int64(7), int64(10), int64(20), nil, make([]byte, 16)}},
	"freeze-hold":            {"hold_pkey", []any{int64(7), int64(5), make([]byte, 32), int64(10), int64(20), int64(5)}},
	"interval-held":          {"hold_task", []any{int64(7), int64(10), int64(20), int64(8)}},
	"verified-in-interval":   {"part_batch", []any{int64(7), int64(10), int64(20)}},
	"ready-batch":            {"part_batch", []any{int64(7), int64(5)}},
	"parked-in-batch":        {"job_batch", []any{int64(7)}},
	"waiting-in-interval":    {"slice_bucket", []any{int64(7), int64(10), int64(20)}},
	"waiting-in-batch":       {"job_batch", []any{int64(7)}},
	"waiting-in-task":        {"slice_bucket", []any{int64(7)}},
	"waiting-by-bucket":      {"slice_bucket", []any{int64(7), int64(16)}},
	"waiting-by-batch":       {"job_batch", []any{[]int64{7, 8}}},
	"begin-issuance":         {"Insert on", []any{make([]byte, 32), int64(7)}},
	"lock-issuance":          {"issuance_pkey", []any{make([]byte, 32), int64(7)}},
	"issuance":               {"issuance_pkey", []any{make([]byte, 32), int64(7)}},
	"find-issued":            {"issued_pkey", []any{make([]byte, 32), int64(7), make([]byte, 32)}},
	"put-issued":             {"Insert on", []any{make([]byte, 32), int64(7), make([]byte, 32)}},
	"count-issued":           {"issuance_pkey", []any{make([]byte, 32), int64(7)}},
	"waiting-in-object":      {"object_name_key", []any{"a"}},
	"stored-objects":         {"object_name_key", []any{"a", int64(16)}},
}

// rare are the statements that run at a start, list a table, are an operator's, or are of a
// table that has one row, or one a week.
var rare = []string{
	"put-identity", "identity", "tasks", "head", "move-head", "shares-of-task",
	"put-data-key-set", "data-key-set", "data-keys", "data-key", "put-data-key", "end-data-key",
	"store-id", "vault-now", "vault-state", "save-vault", "mark-vault", "keep-vault", "put-secret", "secret", "secrets", "drop-secrets",
	"secrets-to-rewrap", "rewrap-secret", "hold-vault", "hold-vaults-alone", "secrets-of-wrapping", "wrappings", "wrapping-ended", "end-wrapping",
	"lead-vault", "resign-vault", "put-replica", "renew-replica", "drop-dead-replicas", "peers", "note-program", "older-programs", "drop-replica",
	"role-rights", "members-begun", "put-member", "renew-member", "drop-old-members", "forget-members", "members",
	"audit-tasks", "audit-releases", "audit-head", "audit-batches", "audit-parts", "audit-released", "audit-spent", "audit-stray-spent", "audit-responses", "audit-strays",
	"audit-jobs", "audit-late-slices", "live-objects", "take-chore", "save-chore", "levels", "oldest-acknowledgement", "holds-of-tasks",
	"total-counts", "total-collected", "total-waiting", "audit-retired", "audit-retired-marks", "audit-registry", "audit-registrations", "registry-turn", "move-registry", "retire-task", "swept-task",
	"keys-were-made", "note-keys", "seen-time", "save-time",
	"wrappings", "replica-lives", "end-wrapping", "wrapping-ended", "hold-vault", "hold-vaults-alone", "renew-replica", "secrets-of-wrapping",
	"marked", "begin-marks", "age", "save-time-and-age", "head-now", "total-at", "forgotten", "forget-task", "new-epoch",
	"viewed-tasks", "total-collected-of-views", "drop-kept-parts", "live-tasks", "stored-bytes", "waiting-of-tasks", "drop-all-slices", "drop-all-jobs", "drop-all-runs", "drop-all-spent-runs", "end-all-rounds", "drop-all-noise", "drop-all-flights", "close-tasks",
	"root-newest", "roots-begun", "roots", "tasks-without-secret", "task-secrets-to-reseal", "reseal-task-secrets",
	"drop-all-hpke-keys", "empty-hpke-vault", "mark-hpke-vault", "forget-replicas",
	"end-issuance", "issuances-over", "forget-issued", "doubt-issuances", "doubt-coming-issuances", "audit-issuances", "issuer-incarnation",
}

// TestPlans: with 1,000 tasks, 50,000 resources and 20,000 releases, each statement of the
// daily work goes by an index.
func TestPlans(t *testing.T) {
	s, service := schema(t)
	x := connect(t, s, s.Owner)
	for _, sql := range []string{
		"INSERT INTO task (task_id, config, mode, time_precision, min_batch) SELECT sha256(n::text::bytea), '', 1, 300, 5 FROM generate_series(1, 1000) AS n",
		`INSERT INTO resource (task, kind, resource_id, digest, created, state, problem)
			SELECT 1 + n % 1000, 1 + n % 3, n::text, sha256(n::text::bytea), n, CASE WHEN n % 100 = 0 THEN 0 ELSE 2 END, CASE WHEN n % 100 = 0 THEN NULL ELSE '{}' END
			FROM generate_series(1, 50000) AS n`,
		"INSERT INTO generation (task, kind, digest, deleted) SELECT 1 + n % 1000, 1, sha256(n::text::bytea), 1 FROM generate_series(1, 20000) AS n",
		`INSERT INTO registration (task, change, form, made, sum, terms, first, tenant, source, added_by, added, kem, signed)
			SELECT n, n, 1, '', ` + hash + `, '', ` + hash + `, '', 1, 'x', 1, 0, false FROM generate_series(1, 1000) AS n`,
		"INSERT INTO replay (task) SELECT n FROM generate_series(1, 1000) AS n",
		"INSERT INTO tally (task, kind, code, reports) SELECT 1 + n % 1000, 0, 0, 1 FROM generate_series(1, 20000) AS n",
		"INSERT INTO batch (task, bucket) SELECT 1 + n % 1000, n FROM generate_series(1, 20000) AS n",
		`INSERT INTO part (batch, reports, first_time, last_time, checksum, data_key, share, sum)
			SELECT n, 1, 1, 1, ` + hash + `, 1 + n % 100, '', ` + hash + ` FROM generate_series(1, 20000) AS n`,
		`INSERT INTO run (task, count, ids, pages, filter, sum, digest) SELECT 1 + n % 1000, 1, decode(repeat('00', 16), 'hex'),
			decode(repeat('00', 48), 'hex'), '', ` + hash + `, ` + hash + ` FROM generate_series(1, 20000) AS n`,
		`INSERT INTO spent_run (task, round, count, entries, pages, filter, sum, digest) SELECT 1 + n % 1000, n % 20, 1, decode(repeat('00', 32), 'hex'),
			decode(repeat('00', 48), 'hex'), '', ` + hash + `, ` + hash + ` FROM generate_series(1, 20000) AS n`,
		"INSERT INTO spent_round (task, round) SELECT 1 + n % 1000, n / 1000 FROM generate_series(1, 20000) AS n",
		`INSERT INTO noise (task, first, last, entries, data_key) SELECT 1 + n % 1000, n, n, 1, 1 + n % 100 FROM generate_series(1, 5000) AS n`,
		"INSERT INTO noise_part (noise, part, box) SELECT id, 0, '' FROM noise",
		`INSERT INTO flight (token, task, ids, expires) SELECT substring(sha256(n::text::bytea) FOR 16), 1 + n % 1000, '', now()
			FROM generate_series(1, 20000) AS n`,
		"INSERT INTO data_key (serial, first, until) SELECT n, n, n + 1 FROM generate_series(1, 100) AS n",
		`INSERT INTO kept (resource, data_key, sealed_to, asked, peer, box) SELECT id, 1 + id % 100, ` + hash + `, '', '', '' FROM resource WHERE id <= 20000`,
		`INSERT INTO hold (resource, task, first, last, selection) SELECT id, task, id, id, decode(repeat('00', 16), 'hex') FROM resource WHERE kind = 2 AND id <= 20000`,
	} {
		x.ok(sql)
	}
	service.ok(`INSERT INTO release (seq, task, kind, resource_id, first, last, count, minimum, checksum, debit, position, answer, chain, total)
		SELECT n, 1 + n % 1000, 2, 'r', n, n, 5, 5, ` + hash + `, '', n, ` + hash + `, ` + hash + `, ` + hash + ` FROM generate_series(1, 20000) AS n`)
	service.ok("INSERT INTO task_view (task, number, units) SELECT n, v, 1 + 6 * v FROM generate_series(1, 1000) AS n, generate_series(0, 1) AS v")
	service.ok("INSERT INTO view_end (task, before) SELECT n, n FROM generate_series(1, 1000) AS n")
	for _, sql := range []string{
		"INSERT INTO object (name, slices) SELECT 'slices/' || n || '.obj', 4 FROM generate_series(1, 5000) AS n",
		"INSERT INTO batch (task, batch_id) SELECT 1 + n % 1000, sha256(n::text::bytea) FROM generate_series(1, 5000) AS n",
		// One in ten is set aside, one in ten failed, and all others are leased.
		`INSERT INTO job (task, bucket, batch, reports, state, why, not_before, lease_token, lease_expires, sent_location, sent_step)
			SELECT 1 + n % 1000, n % 50, 20000 + n, 3, (n % 10 = 0)::int, CASE WHEN n % 10 < 2 THEN 'why' ELSE '' END, CASE WHEN n % 10 = 1 THEN 1500 ELSE 0 END,
			CASE WHEN n % 10 > 1 THEN substring(sha256(n::text::bytea) FOR 16) END, CASE WHEN n % 10 > 1 THEN 1500 END, n::text, 1
			FROM generate_series(1, 5000) AS n`,
		`INSERT INTO slice (object, pieces, size, sum, task, bucket, reports, duplicates, job)
			SELECT 1 + n % 5000, decode('406401', 'hex'), 100, ` + hash + `, 1 + n % 1000, n % 50, 3, 0, CASE WHEN n <= 5000 AND n % 10 > 0 THEN n END
			FROM generate_series(1, 20000) AS n`,
		"INSERT INTO ending (object) SELECT n FROM generate_series(1, 5000) AS n",
		"INSERT INTO tombstone (object) SELECT n::text FROM generate_series(1, 5000) AS n",
		"INSERT INTO stray (object) SELECT 'slices/' || n || '.obj' FROM generate_series(1, 5000) AS n",
		"INSERT INTO answer (job, step, body) SELECT n, 0, '' FROM generate_series(1, 5000) AS n",
		"INSERT INTO replica (purpose, name, expires, seen, proofs, busy) SELECT 1, md5(n::text), 0, 0, '', '' FROM generate_series(1, 5000) AS n",
		"INSERT INTO conduct (task, since, why) SELECT n, CASE WHEN n % 100 = 0 THEN 1 END, CASE WHEN n % 100 = 0 THEN 'why' ELSE '' END FROM generate_series(1, 1000) AS n",
		"INSERT INTO secret (purpose, name, wrapping, box, made) VALUES (4, '0000000000000002', 'x', 'x', 0)",
		"INSERT INTO issuance (deployment, epoch) SELECT decode(repeat('00', 32), 'hex'), n FROM generate_series(1, 1000) AS n",
		"INSERT INTO issued (deployment, epoch, request) SELECT deployment, epoch, sha256(n::text::bytea) FROM issuance, generate_series(1, 10) AS n",
		"INSERT INTO task_secret (task, root, box) SELECT n, '0000000000000002', sha256('') || substring(sha256('') FOR 28) FROM generate_series(1, 1000) AS n",
	} {
		x.ok(sql)
	}
	x.ok("ANALYZE issuance, issued, task_secret, task, registration, resource, generation, hold, release, replay, tally, batch, part, run, spent_run, spent_round, flight, kept, data_key, task_view, view_end, " +
		"object, job, slice, ending, tombstone, answer, conduct, noise, noise_part, replica, stray")
	for name, sql := range statements(t) {
		if slices.Contains(rare, name) {
			continue
		}
		want, hot := plans[name]
		if !hot {
			t.Errorf("no plan is held of the statement %s", name)
			continue
		}
		rows, err := service.Query(t.Context(), "EXPLAIN "+sql, append([]any{pgx.QueryExecModeExec}, want.args...)...)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if plan := strings.Join(lines, "\n"); strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, want.by) {
			t.Errorf("%s, want one by %s:\n%s", name, want.by, plan)
		}
	}
}

// statements are the engine's own, by name.
func statements(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("statements/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	all := make(map[string]string)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split("\n"+string(b), "\n-- name: ")[1:] {
			name, sql, _ := strings.Cut(part, "\n")
			all[name] = sql
		}
	}
	return all
}
