-- name: void-leases
UPDATE job SET lease_token = NULL, lease_expires = NULL WHERE lease_token IS NOT NULL

-- name: due-jobs
SELECT id, task, bucket, batch, attempts, sent_digest, sent_accepted, sent_location, sent_step FROM job
WHERE state = 0 AND parked = 0 AND NOT (not_before > ?1 AND not_before <= ?3)
  AND (lease_token IS NULL OR NOT (lease_expires > ?1 AND lease_expires <= ?3)) AND NOT EXISTS (
  SELECT 1 FROM hold WHERE hold.task = job.task AND count IS NOT NULL AND first <= bucket AND last >= bucket)
  AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = job.task AND retired IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM json_each(?4) AS x WHERE x.value ->> 0 = job.task AND bucket BETWEEN x.value ->> 1 AND x.value ->> 2)
  AND NOT EXISTS (SELECT 1 FROM conduct WHERE conduct.task = job.task AND since IS NOT NULL)
ORDER BY id LIMIT ?2

-- name: put-job
INSERT INTO job (task, bucket, batch, reports) VALUES (?1, ?2, ?3, ?4)

-- name: put-set-aside
INSERT INTO job (task, bucket, reports, state, why) VALUES (?1, ?2, ?3, 1, ?4)

-- name: shrink-job
UPDATE job SET reports = reports - ?2 WHERE id = ?1

-- name: drop-job
DELETE FROM job WHERE id = ?1

-- name: lease-job
UPDATE job SET lease_token = ?2, lease_expires = ?3, attempts = attempts + 1 WHERE id = ?1

-- name: fillable-batch
SELECT id, batch_id, total FROM (
  SELECT id, batch_id, verified + (SELECT coalesce(sum(reports), 0) FROM job WHERE job.batch = batch.id AND state = 0) AS total
  FROM batch WHERE task = ?1 AND closed = 0 AND batch_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM hold WHERE hold.batch = batch.id))
WHERE total < ?2 ORDER BY id LIMIT 1

-- name: leased-job
SELECT id, task, reports, batch, sent_digest, sent_location, sent_step FROM job
WHERE id = ?1 AND state = 0 AND lease_token = ?2

-- name: save-sent
UPDATE job SET sent_digest = ?2, sent_accepted = ?3, sent_location = ?4, lease_expires = max(lease_expires, ?5),
  sent_step = ?6 WHERE id = ?1

-- name: shared-job
SELECT 1 FROM job WHERE state = 0 AND task = ?1 AND sent_location = ?2 AND sent_step > 0 AND id <> ?3 LIMIT 1

-- name: put-answer
INSERT INTO answer (job, step, body) VALUES (?1, ?2, ?3)

-- name: answers
SELECT body FROM answer WHERE job = ?1 ORDER BY step

-- name: drop-answers
DELETE FROM answer WHERE job = ?1

-- name: renew-job
UPDATE job SET lease_expires = max(lease_expires, ?2) WHERE id = ?1

-- name: retry-job
UPDATE job SET lease_token = NULL, lease_expires = NULL, not_before = ?2, why = ?3 WHERE id = ?1

-- name: quarantine-job
UPDATE job SET lease_token = NULL, lease_expires = NULL, state = 1, parked = 0, why = ?2 WHERE id = ?1

-- name: park-job
UPDATE job SET lease_token = NULL, lease_expires = NULL, parked = 1, why = ?2 WHERE id = ?1

-- name: parked-jobs
SELECT id, task, reports, sent_step, why FROM job WHERE parked = 1 ORDER BY id

-- name: unsent-jobs
SELECT id, task, reports, sent_step FROM job WHERE task = ?1 AND state = 0 AND (sent_digest IS NULL OR parked = 1) ORDER BY id

-- name: free-reports
SELECT coalesce(sum(reports), 0) FROM slice WHERE task = ?1 AND job IS NULL

-- name: drop-free-slices
DELETE FROM slice WHERE task = ?1 AND job IS NULL

-- name: unpark-job
UPDATE job SET parked = 0, not_before = 0, why = '' WHERE id = ?1

-- name: parked-in-batch
SELECT 1 FROM job WHERE batch = ?1 AND parked = 1 LIMIT 1

-- name: waiting-in-batch
SELECT coalesce(sum(reports), 0) FROM job WHERE batch = ?1 AND state = 0

-- name: sent-jobs
SELECT id, sent_accepted FROM job WHERE task = ?1 AND state = 0 AND sent_accepted IS NOT NULL ORDER BY id

-- name: hurry-jobs
UPDATE job SET not_before = 0 WHERE task = ?1 AND state = 0 AND parked = 0 AND lease_token IS NULL

-- name: stuck
SELECT id, reports, attempts, state, parked, why, not_before FROM job
WHERE task = ?1 AND (state = 1 OR why <> '') ORDER BY id

-- name: levels
SELECT coalesce(sum(CASE WHEN state = 0 AND parked = 0 AND why <> '' THEN reports END), 0),
  coalesce(sum(CASE WHEN parked = 1 THEN reports END), 0), coalesce(sum(CASE WHEN state = 1 THEN reports END), 0),
  coalesce((SELECT came FROM slice WHERE came > 0 ORDER BY id LIMIT 1), 0) FROM job
