-- name: audit-integrity
PRAGMA quick_check(20)

-- name: audit-foreign-keys
PRAGMA foreign_key_check

-- name: audit-batches
SELECT task, id, bucket, batch_id, closed, verified, first_time, last_time, checksum, share, sum FROM batch
WHERE (SELECT retired FROM task WHERE id = batch.task) IS NULL ORDER BY task, bucket, id

-- name: audit-responses
SELECT task, resource_id, response, answer_sum FROM resource WHERE answer_sum IS NOT NULL ORDER BY id

-- name: audit-releases
SELECT task, kind, resource_id, first, last, batch_id, count, checksum, seq, position, answer, chain, total, view, coalesce(fresh, count) FROM release ORDER BY seq

-- name: audit-runs
SELECT task, coalesce(round, -1), low, high, name, ids, size, sum, digest FROM run ORDER BY task, round, id

-- name: audit-objects
SELECT name FROM object ORDER BY id

-- name: audit-slices
SELECT slice.id, object.name, sum, task, bucket, reports, duplicates, came, pieces
FROM slice JOIN object ON slice.object = object.id ORDER BY slice.id

-- name: audit-jobs
SELECT task, id FROM job WHERE iif(state = 0, reports, 0) <> (SELECT coalesce(sum(reports), 0) FROM slice WHERE slice.job = job.id)
  AND (SELECT retired FROM task WHERE id = job.task) IS NULL

-- name: audit-unledgered
SELECT task, resource_id FROM resource WHERE state = 1 AND kind IN (2, 3) AND NOT EXISTS (
  SELECT 1 FROM release WHERE release.task = resource.task AND release.kind = resource.kind
    AND release.resource_id = resource.resource_id)

-- name: audit-holds
SELECT hold.task, resource.resource_id FROM hold JOIN resource ON hold.resource = resource.id
WHERE resource.state <> 0 OR resource.kind <> 2 OR EXISTS (
  SELECT 1 FROM release WHERE release.task = hold.task AND release.first <= hold.last AND release.last >= hold.first
    AND (release.last - release.first = hold.last - hold.first OR NOT EXISTS (SELECT 1 FROM task_view WHERE task_view.task = hold.task)))
  OR EXISTS (SELECT 1 FROM batch WHERE batch.id = hold.batch AND closed = 1)

-- name: audit-lost-jobs
SELECT job.task, job.id FROM job JOIN batch ON job.batch = batch.id WHERE job.state = 0 AND batch.closed = 1

-- name: audit-lost-slices
SELECT task, bucket FROM slice WHERE EXISTS (
  SELECT 1 FROM release WHERE release.task = slice.task AND release.first <= bucket AND release.last >= bucket)
  OR job IS NULL AND bucket < (SELECT over FROM task WHERE id = slice.task)

-- name: audit-frozen
SELECT hold.task, resource.resource_id FROM hold JOIN resource ON hold.resource = resource.id
WHERE hold.count IS NOT NULL AND hold.count <> (SELECT coalesce(sum(verified), 0) FROM batch
  WHERE batch.id = hold.batch OR (batch.task = hold.task AND batch.bucket BETWEEN hold.first AND hold.last))

-- name: audit-answers
SELECT task, id FROM job WHERE (SELECT count(*) FROM answer WHERE answer.job = job.id AND step < sent_step)
  <> iif(state = 0, sent_step, 0) OR EXISTS (SELECT 1 FROM answer WHERE answer.job = job.id AND step >= sent_step)

-- name: audit-noise
SELECT name, size FROM noise ORDER BY task, first

-- name: audit-stray-noise
SELECT task, name FROM noise WHERE NOT EXISTS (
  SELECT 1 FROM release WHERE release.task = noise.task AND release.first = noise.first AND release.last = noise.last)
