-- name: counts
SELECT kind, code, sum(reports)::bigint FROM tally WHERE task = $1 GROUP BY kind, code

-- name: collected
SELECT coalesce(sum(count), 0)::bigint FROM release WHERE task = $1 AND view = 0

-- name: total-counts
SELECT kind, code, sum(reports)::bigint FROM tally GROUP BY kind, code

-- name: total-collected
SELECT coalesce(sum(count), 0)::bigint FROM release WHERE view = 0

-- name: total-waiting
SELECT coalesce(sum(reports), 0)::bigint FROM slice

-- name: newest-batches
SELECT id, closed, coalesce(verified, 0), coalesce(first_time, 0), coalesce(last_time, 0), checksum,
  EXISTS (SELECT 1 FROM hold WHERE hold.batch = batch.id OR hold.task = batch.task AND hold.first <= batch.bucket AND hold.last >= batch.bucket),
  bucket, batch_id
FROM batch WHERE task = $1 ORDER BY bucket DESC, id DESC LIMIT $2

-- name: parts
SELECT batch, reports, first_time, last_time, checksum FROM part WHERE batch = ANY($1::bigint[])

-- name: batches-in-interval
SELECT id, closed, bucket, batch_id FROM batch WHERE task = $1 AND bucket BETWEEN $2 AND $3 ORDER BY bucket

-- name: batch-of-id
SELECT id, closed, bucket, batch_id FROM batch WHERE task = $1 AND batch_id = $2

-- name: shares
SELECT batch, reports, first_time, last_time, checksum, data_key, own, share, sum FROM part WHERE batch = ANY($1::bigint[])

-- name: close-batches
UPDATE batch SET closed = true, verified = x.reports, checksum = x.checksum,
  first_time = CASE WHEN x.reports > 0 THEN x.first END, last_time = CASE WHEN x.reports > 0 THEN x.last END
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[]) AS x (id, reports, first, last, checksum)
WHERE batch.id = x.id AND NOT batch.closed

-- name: drop-parts
DELETE FROM part WHERE batch = ANY($1::bigint[])

-- name: bucket-state
SELECT (SELECT last FROM release WHERE task = $1 AND first IS NOT NULL AND first <= $2 AND view = 0 ORDER BY first DESC LIMIT 1) >= $2,
  (SELECT last FROM hold WHERE task = $1 AND first <= $2 ORDER BY first DESC LIMIT 1) >= $2

-- name: id-state
SELECT EXISTS (SELECT 1 FROM release WHERE task = $1 AND view = 0 AND batch_id = $2),
  EXISTS (SELECT 1 FROM batch JOIN hold ON hold.batch = batch.id WHERE batch.task = $1 AND batch_id = $2)
