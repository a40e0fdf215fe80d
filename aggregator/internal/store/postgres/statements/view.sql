-- name: put-view
INSERT INTO task_view (task, number, units) SELECT id, $2, $3 FROM task WHERE task_id = $1

-- name: views-of
SELECT units FROM task_view WHERE task = $1 ORDER BY number

-- name: views-ended
SELECT before FROM view_end WHERE task = $1

-- name: end-views
INSERT INTO view_end (task, before) VALUES ($1, $2) ON CONFLICT (task) DO UPDATE SET before = greatest(view_end.before, excluded.before)

-- Spans of a view begin with multiples of its units, so that one row of each may have a bucket.
-- name: shut-buckets-of-views
SELECT b FROM unnest($2::bigint[]) AS b
WHERE b < (SELECT before FROM view_end WHERE task = $1)
  OR EXISTS (SELECT 1 FROM task_view AS v JOIN release AS r ON r.task = v.task AND r.view = v.number AND r.first = b - b % v.units WHERE v.task = $1)
  OR (SELECT last FROM hold WHERE task = $1 AND first <= b AND count IS NOT NULL ORDER BY first DESC LIMIT 1) >= b

-- name: bucket-state-of-views
SELECT coalesce($2 < (SELECT before FROM view_end WHERE task = $1), false)
    OR EXISTS (SELECT 1 FROM task_view AS v JOIN release AS r ON r.task = v.task AND r.view = v.number AND r.first = $2 - $2 % v.units WHERE v.task = $1),
  (SELECT last FROM hold WHERE task = $1 AND first <= $2 ORDER BY first DESC LIMIT 1) >= $2

-- name: shut-places-of-views
SELECT p.n, ended.yes FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS p (task, bucket, n)
CROSS JOIN LATERAL (SELECT (SELECT closed FROM registration WHERE registration.task = p.task) IS NOT NULL AS yes) AS ended
WHERE ended.yes
  OR (SELECT last FROM release WHERE release.task = p.task AND first IS NOT NULL AND first <= p.bucket AND view = 0 ORDER BY first DESC LIMIT 1) >= p.bucket
  OR (SELECT last FROM hold WHERE hold.task = p.task AND first <= p.bucket AND count IS NOT NULL ORDER BY first DESC LIMIT 1) >= p.bucket
  OR p.bucket < (SELECT before FROM view_end WHERE view_end.task = p.task)
  OR EXISTS (SELECT 1 FROM task_view AS v JOIN release AS r ON r.task = v.task AND r.view = v.number AND r.first = p.bucket - p.bucket % v.units
    WHERE v.task = p.task)

-- name: view-closed
SELECT 1 FROM release WHERE task = $1 AND view = $2 AND first <= $4 AND last >= $3 AND first IS NOT NULL LIMIT 1

-- name: drawn
SELECT view, first FROM release WHERE task = $1 AND first IS NOT NULL AND first <= $3 AND last >= $2

-- name: batches-in-span
SELECT id, closed, bucket, coalesce(verified, 0) FROM batch WHERE task = $1 AND bucket BETWEEN $2 AND $3 ORDER BY bucket

-- name: put-release-of-view
INSERT INTO release (seq, task, kind, resource_id, first, last, batch_id, count, minimum, checksum, debit, position, answer, chain, total, view, fresh)
SELECT $1, id, $3, $4, $5, $6, $7, $8, min_batch, $9, $10, $11, $12, $13, $14, $15, $16 FROM task WHERE id = $2

-- name: held-before
SELECT 1 FROM hold WHERE task = $1 AND first < $2 LIMIT 1

-- The objects that the slices lie in are noted, as where a job ends.
-- name: drop-slices-before
WITH gone AS (DELETE FROM slice WHERE task = $1 AND bucket < $2 AND job IS NULL RETURNING object, reports),
noted AS (INSERT INTO ending (object) SELECT DISTINCT object FROM gone)
SELECT coalesce(sum(reports), 0)::bigint FROM gone

-- name: batches-before
SELECT id, closed, bucket FROM batch WHERE task = $1 AND bucket < $2
  AND (NOT closed OR EXISTS (SELECT 1 FROM part WHERE part.batch = batch.id)) ORDER BY bucket

-- name: drop-kept-parts
DELETE FROM part WHERE batch IN (SELECT id FROM batch WHERE closed)

-- name: collected-of-views
SELECT coalesce(sum(coalesce(fresh, count)), 0)::bigint FROM release WHERE task = $1

-- name: total-collected-of-views
SELECT coalesce(sum(coalesce(fresh, count)), 0)::bigint FROM release

-- name: audit-released-in-views
SELECT kind, resource_id, coalesce(first, 0), coalesce(last, 0), batch_id, count, checksum, view, coalesce(fresh, count) FROM release
WHERE task = $1 ORDER BY seq

-- name: viewed-tasks
SELECT task_id FROM task WHERE retired IS NULL AND EXISTS (SELECT 1 FROM task_view WHERE task_view.task = task.id) ORDER BY task_id
