-- name: retire-task
UPDATE task SET retired = $2 WHERE id = $1 AND retired IS NULL

-- name: swept-task
UPDATE task SET swept = true WHERE id = $1

-- The objects that the slices lie in are noted, as where a job ends.
-- name: sweep-slices
WITH gone AS (
  DELETE FROM slice WHERE id IN (SELECT id FROM slice WHERE task = $1 ORDER BY id LIMIT $2) RETURNING object, reports),
noted AS (INSERT INTO ending (object) SELECT DISTINCT object FROM gone)
SELECT count(*), coalesce(sum(reports), 0)::bigint FROM gone

-- name: sweep-jobs
DELETE FROM job WHERE id IN (SELECT id FROM job WHERE task = $1 ORDER BY id LIMIT $2)

-- name: sweep-conduct
DELETE FROM conduct WHERE task = $1

-- name: sweep-runs
DELETE FROM run WHERE id IN (SELECT id FROM run WHERE task = $1 ORDER BY id LIMIT $2)

-- name: sweep-noise
DELETE FROM noise WHERE id IN (SELECT id FROM noise WHERE task = $1 LIMIT $2)

-- name: sweep-resources
DELETE FROM resource WHERE id IN (SELECT id FROM resource WHERE task = $1 LIMIT $2)

-- name: sweep-generations
DELETE FROM generation WHERE (task, kind, digest) IN (SELECT task, kind, digest FROM generation WHERE task = $1 LIMIT $2)

-- name: sweep-parts
DELETE FROM part WHERE id IN (SELECT part.id FROM part JOIN batch ON part.batch = batch.id WHERE batch.task = $1 LIMIT $2)

-- name: sweep-batches
DELETE FROM batch WHERE id IN (SELECT id FROM batch WHERE task = $1 LIMIT $2)

-- name: audit-retired
SELECT swept, EXISTS (SELECT 1 FROM run WHERE task = $1) OR EXISTS (SELECT 1 FROM noise WHERE task = $1)
  OR EXISTS (SELECT 1 FROM resource WHERE task = $1) OR EXISTS (SELECT 1 FROM generation WHERE task = $1)
  OR EXISTS (SELECT 1 FROM batch WHERE task = $1) OR EXISTS (SELECT 1 FROM job WHERE task = $1)
  OR EXISTS (SELECT 1 FROM slice WHERE task = $1)
FROM task WHERE id = $1

-- name: audit-retired-marks
SELECT EXISTS (SELECT 1 FROM spent_run WHERE task = $1) OR EXISTS (SELECT 1 FROM spent_round WHERE task = $1)
