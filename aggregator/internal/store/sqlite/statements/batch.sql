-- name: batch-of-bucket
SELECT id, bucket, batch_id, closed, verified, first_time, last_time, checksum, share, sum FROM batch WHERE task = ?1 AND bucket = ?2

-- name: batch-of-id
SELECT id, bucket, batch_id, closed, verified, first_time, last_time, checksum, share, sum FROM batch WHERE task = ?1 AND batch_id = ?2

-- name: batch-by-row
SELECT batch_id FROM batch WHERE id = ?1

-- name: put-batch
INSERT INTO batch (task, bucket, batch_id) VALUES (?1, ?2, ?3)

-- name: merge-batch
UPDATE batch SET verified = ?2, first_time = ?3, last_time = ?4, checksum = ?5, share = ?6, sum = ?7 WHERE id = ?1

-- name: batches-in-interval
SELECT id, bucket, batch_id, closed, verified, first_time, last_time, checksum, share, sum FROM batch
WHERE task = ?1 AND bucket BETWEEN ?2 AND ?3 ORDER BY bucket

-- name: open-batches
SELECT task, id, bucket, batch_id, closed, verified, first_time, last_time, checksum, share, sum FROM batch WHERE closed = 0

-- name: verified-in-interval
SELECT coalesce(sum(verified), 0) FROM batch WHERE task = ?1 AND bucket BETWEEN ?2 AND ?3

-- name: ready-batch
SELECT id, batch_id FROM batch WHERE task = ?1 AND closed = 0 AND batch_id IS NOT NULL AND verified >= ?2
  AND NOT EXISTS (SELECT 1 FROM hold WHERE hold.batch = batch.id)
  AND NOT EXISTS (SELECT 1 FROM job WHERE job.batch = batch.id AND parked = 1)
ORDER BY id LIMIT 1

-- name: close-batch
UPDATE batch SET closed = 1, share = NULL, sum = NULL WHERE id = ?1

-- name: interval-closed
SELECT 1 FROM release WHERE task = ?1 AND first <= ?3 AND last >= ?2
UNION ALL SELECT 1 FROM task WHERE id = ?1 AND over > ?2 LIMIT 1

-- name: id-closed
SELECT 1 FROM release WHERE task = ?1 AND batch_id = ?2

-- name: id-held
SELECT count IS NOT NULL FROM hold JOIN batch ON hold.batch = batch.id WHERE batch.task = ?1 AND batch_id = ?2

-- name: interval-held
SELECT count IS NOT NULL FROM hold WHERE task = ?1 AND first <= ?3 AND last >= ?2 AND resource <> ?4
ORDER BY 1 DESC LIMIT 1

-- name: put-release
INSERT INTO release (seq, task, kind, resource_id, first, last, batch_id, count, checksum, debit, position, answer, chain, total, view, fresh)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)

-- name: last-release
SELECT seq, total FROM release ORDER BY seq DESC LIMIT 1

-- name: last-release-of-task
SELECT position, chain FROM release WHERE task = ?1 ORDER BY position DESC LIMIT 1

-- name: release-at
SELECT first, last, batch_id, count, answer, chain FROM release WHERE task = ?1 AND position = ?2

-- name: total-at
SELECT total FROM release WHERE seq = ?1

-- name: put-run
INSERT INTO run (task, round, low, high, name, ids, size, sum, digest) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)

-- name: runs-of
SELECT task, coalesce(round, -1), low, high, name, ids, size, sum, digest FROM run WHERE task = ?1 AND round IS ?2 ORDER BY id

-- name: latest-run
SELECT id FROM run WHERE task = ?1 AND round IS ?2 ORDER BY id DESC LIMIT 1

-- name: drop-run
DELETE FROM run WHERE name = ?1

-- name: live-runs
SELECT name FROM run UNION ALL SELECT name FROM noise

-- name: batches
SELECT bucket, batch_id, closed, verified, first_time, last_time, checksum, 
  (SELECT coalesce(sum(reports), 0) FROM slice WHERE slice.task = batch.task AND slice.bucket = batch.bucket)
    + (SELECT coalesce(sum(reports), 0) FROM job WHERE job.batch = batch.id AND state = 0),
  EXISTS (SELECT 1 FROM hold WHERE hold.batch = batch.id
    OR (hold.task = batch.task AND hold.first <= batch.bucket AND hold.last >= batch.bucket)),
  EXISTS (SELECT 1 FROM bucket_sum WHERE bucket_sum.batch = batch.id)
FROM batch WHERE task = ?1 ORDER BY bucket DESC, id DESC LIMIT ?2

-- name: new-buckets
SELECT bucket, sum(reports) FROM slice WHERE task = ?1 AND NOT EXISTS (
  SELECT 1 FROM batch WHERE batch.task = slice.task AND batch.bucket = slice.bucket)
GROUP BY bucket ORDER BY bucket DESC LIMIT ?2

-- name: latest-noise
SELECT id, first, last, name, size, sum FROM noise WHERE task = ?1 ORDER BY last DESC

-- name: releases-of-task
SELECT count(*) FROM release WHERE task = ?1

-- name: put-noise
INSERT INTO noise (task, first, last, name, size, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: drop-noise
DELETE FROM noise WHERE id = ?1

-- name: releases-after
SELECT seq, coalesce(first, 0), coalesce(last, 0), batch_id, count, checksum FROM release
WHERE task = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3

-- name: frozen
SELECT selection, count, checksum FROM hold WHERE task = ?1 AND count IS NOT NULL ORDER BY resource
