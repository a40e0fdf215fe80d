-- name: retire-task
UPDATE task SET retired = ?2 WHERE id = ?1 AND retired IS NULL

-- name: swept-task
UPDATE task SET swept = 1 WHERE id = ?1

-- name: sweep-slices
SELECT id, reports FROM slice WHERE task = ?1 LIMIT ?2

-- name: sweep-jobs
SELECT id, 0 FROM job WHERE task = ?1 AND NOT EXISTS (SELECT 1 FROM slice WHERE slice.job = job.id) LIMIT ?2

-- name: sweep-runs
SELECT id, 0 FROM run WHERE task = ?1 LIMIT ?2

-- name: sweep-run
DELETE FROM run WHERE id = ?1

-- name: sweep-noise
SELECT id, 0 FROM noise WHERE task = ?1 LIMIT ?2

-- name: sweep-resources
DELETE FROM resource WHERE id IN (SELECT id FROM resource WHERE task = ?1 LIMIT ?2)

-- name: sweep-generations
DELETE FROM generation WHERE (task, kind, digest) IN (SELECT task, kind, digest FROM generation WHERE task = ?1 LIMIT ?2)

-- name: sweep-batches
DELETE FROM batch WHERE id IN (SELECT id FROM batch WHERE task = ?1 LIMIT ?2)

-- name: audit-retired
SELECT id, retired, swept, collected, (SELECT coalesce(sum(coalesce(fresh, count)), 0) FROM release WHERE release.task = task.id),
  EXISTS (SELECT 1 FROM slice WHERE slice.task = task.id) OR EXISTS (SELECT 1 FROM job WHERE job.task = task.id) OR EXISTS (SELECT 1 FROM run WHERE run.task = task.id)
    OR EXISTS (SELECT 1 FROM noise WHERE noise.task = task.id)
    OR EXISTS (SELECT 1 FROM resource WHERE resource.task = task.id) OR EXISTS (SELECT 1 FROM batch WHERE batch.task = task.id)
    OR EXISTS (SELECT 1 FROM generation WHERE generation.task = task.id)
    OR EXISTS (SELECT 1 FROM spent_round WHERE spent_round.task = task.id)
FROM task WHERE retired IS NOT NULL
