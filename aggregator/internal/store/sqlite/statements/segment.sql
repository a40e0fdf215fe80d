-- name: void-leases
UPDATE segment SET lease_token = NULL, lease_expires = NULL WHERE lease_token IS NOT NULL

-- name: find-log
SELECT 1 FROM log WHERE log_id = ?1 AND sorted = 1

-- name: put-log
INSERT INTO log (log_id, sorted) VALUES (?1, 1)
ON CONFLICT (log_id) DO UPDATE SET sorted = 1, file = NULL

-- name: begin-log
INSERT INTO log (log_id, file, sorted) VALUES (?1, ?2, 0) ON CONFLICT (log_id) DO NOTHING

-- name: begun-logs
SELECT log_id, file FROM log WHERE sorted = 0 ORDER BY file, log_id

-- name: forget-begun
DELETE FROM log WHERE sorted = 0

-- name: forget-log
DELETE FROM log WHERE log_id = ?1

-- name: put-segment
INSERT INTO segment (name, size, sum, duplicates, task, bucket, reports, came) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: late-segments
SELECT id, reports FROM segment WHERE task = ?1 AND state = 0 AND bucket BETWEEN ?2 AND ?3

-- name: drop-segment
DELETE FROM segment WHERE id = ?1

-- name: claimable-segments
SELECT id, name, size, sum, duplicates, task, bucket, reports, batch, attempts, sent_digest, sent_accepted, sent_location,
  sent_step FROM segment
WHERE state = 0 AND parked = 0 AND NOT (not_before > ?1 AND not_before <= ?3)
  AND (lease_token IS NULL OR NOT (lease_expires > ?1 AND lease_expires <= ?3)) AND NOT EXISTS (
  SELECT 1 FROM hold WHERE hold.task = segment.task AND count IS NOT NULL AND first <= bucket AND last >= bucket)
  AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = segment.task AND retired IS NOT NULL)
  AND task NOT IN (SELECT value FROM json_each(?4))
  AND NOT EXISTS (SELECT 1 FROM conduct WHERE conduct.task = segment.task AND since IS NOT NULL)
ORDER BY id LIMIT ?2

-- name: lease-segment
UPDATE segment SET lease_token = ?2, lease_expires = ?3, attempts = attempts + 1, batch = ?4 WHERE id = ?1

-- name: fillable-batch
SELECT id, batch_id FROM batch WHERE task = ?1 AND closed = 0 AND batch_id IS NOT NULL
  AND verified + (SELECT coalesce(sum(reports), 0) FROM segment WHERE segment.batch = batch.id AND state = 0) < ?2
  AND NOT EXISTS (SELECT 1 FROM hold WHERE hold.batch = batch.id)
ORDER BY id LIMIT 1

-- name: leased-segment
SELECT id, task, reports, batch, sent_digest, sent_location, sent_step FROM segment
WHERE name = ?1 AND state = 0 AND lease_token = ?2

-- name: save-sent
UPDATE segment SET sent_digest = ?2, sent_accepted = ?3, sent_location = ?4, lease_expires = max(lease_expires, ?5),
  sent_step = ?6 WHERE id = ?1

-- name: shared-job
SELECT 1 FROM segment WHERE state = 0 AND task = ?1 AND sent_location = ?2 AND sent_step > 0 AND id <> ?3 LIMIT 1

-- name: put-answer
INSERT INTO answer (segment, step, body) VALUES (?1, ?2, ?3)

-- name: answers
SELECT body FROM answer WHERE segment = ?1 ORDER BY step

-- name: drop-answers
DELETE FROM answer WHERE segment = ?1

-- name: retry-segment
UPDATE segment SET lease_token = NULL, lease_expires = NULL, not_before = ?2, why = ?3 WHERE id = ?1

-- name: quarantine-segment
UPDATE segment SET lease_token = NULL, lease_expires = NULL, state = 1, parked = 0, why = ?2 WHERE id = ?1

-- name: park-segment
UPDATE segment SET lease_token = NULL, lease_expires = NULL, parked = 1, why = ?2 WHERE id = ?1

-- name: parked-segments
SELECT id, task, reports, sent_step, why FROM segment WHERE parked = 1 ORDER BY id

-- name: unpark-segment
UPDATE segment SET parked = 0, not_before = 0, why = '' WHERE id = ?1

-- name: parked-in-batch
SELECT 1 FROM segment WHERE batch = ?1 AND parked = 1 LIMIT 1

-- name: waiting-in-interval
SELECT coalesce(sum(reports), 0) FROM segment WHERE task = ?1 AND state = 0 AND bucket BETWEEN ?2 AND ?3

-- name: waiting-in-batch
SELECT coalesce(sum(reports), 0) FROM segment WHERE batch = ?1 AND state = 0

-- name: sent-segments
SELECT name, size, sum, duplicates, bucket, reports, sent_accepted FROM segment
WHERE task = ?1 AND state = 0 AND sent_accepted IS NOT NULL ORDER BY id

-- name: hurry-segments
UPDATE segment SET not_before = 0 WHERE task = ?1 AND state = 0 AND parked = 0 AND lease_token IS NULL

-- name: stuck
SELECT name, reports, attempts, state, parked, why, not_before FROM segment
WHERE task = ?1 AND (state = 1 OR why <> '') ORDER BY id

-- name: levels
SELECT coalesce(sum(CASE WHEN state = 0 AND parked = 0 AND why <> '' THEN reports END), 0),
  coalesce(sum(CASE WHEN parked = 1 THEN reports END), 0), coalesce(sum(CASE WHEN state = 1 THEN reports END), 0),
  coalesce(min(CASE WHEN state = 0 AND came > 0 THEN came END), 0) FROM segment

-- name: live-segments
SELECT name FROM segment WHERE state = 0
