-- A job that is due, or a free slice among the oldest.
-- name: claimable
SELECT coalesce((
  SELECT j.id FROM job AS j JOIN task AS t ON j.task = t.id
  WHERE j.state = 0 AND NOT j.parked AND NOT (j.not_before > $1 AND j.not_before <= $2)
    AND (j.lease_token IS NULL OR NOT (j.lease_expires > $1 AND j.lease_expires <= $2))
    AND t.retired IS NULL AND NOT EXISTS (SELECT 1 FROM unnest($3::bytea[], $4::bigint[], $5::bigint[]) AS x (task, first, last) WHERE x.task = t.task_id AND j.bucket BETWEEN x.first AND x.last)
    AND NOT EXISTS (SELECT 1 FROM conduct WHERE conduct.task = j.task AND since IS NOT NULL)
  ORDER BY j.id LIMIT 1), (
  SELECT s.id FROM (SELECT id, task, bucket FROM slice WHERE job IS NULL ORDER BY id LIMIT $6) AS s JOIN task AS t ON s.task = t.id
  WHERE t.retired IS NULL AND NOT EXISTS (SELECT 1 FROM unnest($3::bytea[], $4::bigint[], $5::bigint[]) AS x (task, first, last) WHERE x.task = t.task_id AND s.bucket BETWEEN x.first AND x.last)
    AND NOT EXISTS (SELECT 1 FROM conduct WHERE conduct.task = s.task AND since IS NOT NULL)
  ORDER BY s.id LIMIT 1)) IS NOT NULL

-- name: claimable-after
SELECT s.id FROM slice AS s JOIN task AS t ON s.task = t.id
WHERE s.job IS NULL AND s.id > $1 AND t.retired IS NULL AND NOT EXISTS (SELECT 1 FROM unnest($2::bytea[], $3::bigint[], $4::bigint[]) AS x (task, first, last) WHERE x.task = t.task_id AND s.bucket BETWEEN x.first AND x.last)
  AND NOT EXISTS (SELECT 1 FROM conduct WHERE conduct.task = s.task AND since IS NOT NULL)
ORDER BY s.id LIMIT 1

-- name: newest-slice
SELECT id FROM slice WHERE job IS NULL ORDER BY id DESC LIMIT 1

-- What another claim is at is passed over.
-- name: due-jobs
SELECT j.id, t.task_id, j.bucket, b.batch_id, j.attempts, j.sent_digest, j.sent_accepted, j.sent_location, j.sent_step
FROM job AS j JOIN task AS t ON j.task = t.id LEFT JOIN batch AS b ON j.batch = b.id
WHERE j.state = 0 AND NOT j.parked AND NOT (j.not_before > $1 AND j.not_before <= $2)
  AND (j.lease_token IS NULL OR NOT (j.lease_expires > $1 AND j.lease_expires <= $2))
  AND t.retired IS NULL AND NOT EXISTS (SELECT 1 FROM unnest($3::bytea[], $4::bigint[], $5::bigint[]) AS x (task, first, last) WHERE x.task = t.task_id AND j.bucket BETWEEN x.first AND x.last)
  AND NOT EXISTS (SELECT 1 FROM conduct WHERE conduct.task = j.task AND since IS NOT NULL)
ORDER BY j.id LIMIT $6 FOR UPDATE OF j SKIP LOCKED

-- name: drop-flight-of-lease
DELETE FROM flight WHERE token = (SELECT lease_token FROM job WHERE id = $1)

-- name: lease-job
UPDATE job SET lease_token = $2, lease_expires = $3, attempts = attempts + 1 WHERE id = $1

-- name: oldest-slice
SELECT s.task, t.task_id, t.mode, t.min_batch, s.bucket FROM slice AS s JOIN task AS t ON s.task = t.id
WHERE s.job IS NULL AND t.retired IS NULL AND NOT EXISTS (SELECT 1 FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS x (task, first, last) WHERE x.task = t.task_id AND s.bucket BETWEEN x.first AND x.last)
  AND s.id <= (SELECT max(id) FROM (SELECT id FROM slice WHERE job IS NULL ORDER BY id LIMIT $4) AS first)
  AND NOT EXISTS (SELECT 1 FROM conduct WHERE conduct.task = s.task AND since IS NOT NULL)
ORDER BY s.id LIMIT 1 FOR UPDATE OF s SKIP LOCKED

-- name: oldest-slice-after
SELECT s.task, t.task_id, t.mode, t.min_batch, s.bucket FROM slice AS s JOIN task AS t ON s.task = t.id
WHERE s.job IS NULL AND s.id > $4 AND t.retired IS NULL AND NOT EXISTS (SELECT 1 FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS x (task, first, last) WHERE x.task = t.task_id AND s.bucket BETWEEN x.first AND x.last)
  AND NOT EXISTS (SELECT 1 FROM conduct WHERE conduct.task = s.task AND since IS NOT NULL)
ORDER BY s.id LIMIT 1 FOR UPDATE OF s SKIP LOCKED

-- name: free-slices
SELECT id, size, reports FROM slice WHERE task = $1 AND bucket = $2 AND job IS NULL ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED

-- name: turn-of-batches
SELECT 1 FROM task WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED

-- name: open-batches
SELECT b.id, b.batch_id, verified.n, assigned.n, EXISTS (SELECT 1 FROM hold WHERE hold.batch = b.id)
FROM (SELECT id, batch_id FROM batch WHERE task = $1 AND NOT closed AND batch_id IS NOT NULL AND id > $2 ORDER BY id LIMIT $3) AS b
CROSS JOIN LATERAL (SELECT coalesce(sum(reports), 0)::bigint AS n FROM part WHERE part.batch = b.id) AS verified
CROSS JOIN LATERAL (SELECT coalesce(sum(reports), 0)::bigint AS n FROM job WHERE job.batch = b.id AND state = 0) AS assigned
ORDER BY b.id

-- name: put-batch-id
INSERT INTO batch (task, batch_id) VALUES ($1, $2) RETURNING id

-- name: put-job
INSERT INTO job (task, bucket, batch, reports, lease_token, lease_expires, attempts) VALUES ($1, $2, $3, $4, $5, $6, 1) RETURNING id

-- name: take-slices
UPDATE slice SET job = $1 WHERE id = ANY($2::bigint[])

-- name: answers-of-job
SELECT body FROM answer WHERE job = $1 ORDER BY step

-- name: leased-job
SELECT id, task, bucket, reports, sent_digest, sent_location, sent_step FROM job WHERE id = $1 AND state = 0 AND lease_token = $2

-- name: lock-leased-job
SELECT id, task, bucket, reports, sent_digest, sent_location, sent_step FROM job WHERE id = $1 AND state = 0 AND lease_token = $2 FOR UPDATE

-- name: find-slices-of-job
SELECT slice.id, slice.reports, object.name, slice.pieces FROM slice JOIN object ON slice.object = object.id WHERE slice.job = $1

-- name: shrink-job
UPDATE job SET reports = reports - $2 WHERE id = $1

-- name: put-aside
INSERT INTO job (task, bucket, reports, state, why) VALUES ($1, $2, $3, 1, $4)

-- name: save-sent
UPDATE job SET sent_digest = $2, sent_accepted = $3, sent_location = $4, lease_expires = greatest(lease_expires, $5), sent_step = $6 WHERE id = $1

-- name: shared-job
SELECT 1 FROM job WHERE task = $1 AND sent_location = $2 AND state = 0 AND sent_step > 0 AND id <> $3 LIMIT 1

-- name: put-answer
INSERT INTO answer (job, step, body) VALUES ($1, $2, $3)

-- name: drop-answers
DELETE FROM answer WHERE job = $1

-- name: renew-job
UPDATE job SET lease_expires = greatest(lease_expires, $3) WHERE id = $1 AND state = 0 AND lease_token = $2

-- name: retry-job
UPDATE job SET lease_token = NULL, lease_expires = NULL, not_before = $2, why = $3 WHERE id = $1

-- name: quarantine-job
UPDATE job SET lease_token = NULL, lease_expires = NULL, state = 1, parked = false, why = $2 WHERE id = $1

-- name: park-job
UPDATE job SET lease_token = NULL, lease_expires = NULL, parked = true, why = $2 WHERE id = $1

-- name: drop-job
DELETE FROM job WHERE id = $1

-- name: parked-jobs
SELECT id, task, reports, why FROM job WHERE task = ANY($1::bigint[]) AND parked ORDER BY id FOR UPDATE

-- Jobs that are being claimed, or sent, are waited for.
-- name: lock-free-slices
SELECT count(*) FROM (SELECT 1 FROM slice WHERE task = $1 AND job IS NULL ORDER BY id FOR UPDATE) AS waiting

-- name: lock-unsent-jobs
SELECT id FROM job WHERE task = $1 AND state = 0 AND (sent_digest IS NULL OR parked) ORDER BY id FOR UPDATE

-- name: give-up-slices
WITH gone AS (DELETE FROM slice WHERE task = $1 AND (job IS NULL OR job = ANY($2::bigint[])) RETURNING object, reports),
noted AS (INSERT INTO ending (object) SELECT DISTINCT object FROM gone)
SELECT coalesce(sum(reports), 0)::bigint FROM gone

-- name: give-up-jobs
DELETE FROM job WHERE id = ANY($1::bigint[])

-- name: unpark-job
UPDATE job SET parked = false, not_before = 0, why = '' WHERE id = $1

-- name: hurry-jobs
UPDATE job SET not_before = 0 WHERE task = $1 AND state = 0 AND NOT parked AND lease_token IS NULL AND not_before > 0

-- name: sent-jobs
SELECT id, sent_accepted FROM job WHERE task = $1 AND state = 0 AND sent_accepted IS NOT NULL ORDER BY id

-- name: stuck-jobs
SELECT id, reports, attempts, state = 1, parked, why, not_before FROM job WHERE task = $1 AND (state = 1 OR why <> '') ORDER BY id

-- name: levels
SELECT coalesce(sum(CASE WHEN state = 0 AND NOT parked AND why <> '' THEN reports END), 0)::bigint,
  coalesce(sum(CASE WHEN parked THEN reports END), 0)::bigint, coalesce(sum(CASE WHEN state = 1 THEN reports END), 0)::bigint FROM job

-- name: oldest-acknowledgement
SELECT coalesce(min(came), 0) FROM slice WHERE came > 0

-- name: conduct
SELECT heard, turned, asked, refused, since IS NOT NULL FROM conduct WHERE task = $1

-- name: lock-conduct
SELECT heard, turned, asked, refused, since IS NOT NULL FROM conduct WHERE task = $1 FOR UPDATE

-- name: begin-conduct
INSERT INTO conduct (task) VALUES ($1) ON CONFLICT (task) DO NOTHING

-- name: save-conduct
UPDATE conduct SET heard = $2, turned = $3, asked = $4, refused = $5 WHERE task = $1

-- name: hold-task
INSERT INTO conduct (task, since, person, why) VALUES ($1, $2, $3, $4)
ON CONFLICT (task) DO UPDATE SET since = $2, person = $3, why = $4

-- name: holds-of-tasks
SELECT task.task_id, since, person, why FROM conduct JOIN task ON conduct.task = task.id WHERE since IS NOT NULL ORDER BY task.id

-- name: forgive-task
DELETE FROM conduct WHERE task = $1

-- name: audit-jobs
SELECT id, state = 1, reports, (SELECT coalesce(sum(reports), 0)::bigint FROM slice WHERE slice.job = job.id) FROM job WHERE task = $1 ORDER BY id

-- name: audit-late-slices
SELECT bucket, sum(reports)::bigint FROM slice WHERE task = $1 AND (
  EXISTS (SELECT 1 FROM hold WHERE hold.task = slice.task AND count IS NOT NULL AND first <= bucket AND last >= bucket)
  OR EXISTS (SELECT 1 FROM release WHERE release.task = slice.task AND view = 0 AND first <= bucket AND last >= bucket))
GROUP BY bucket ORDER BY bucket
