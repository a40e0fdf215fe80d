-- name: selection-of
SELECT selection FROM resource WHERE id = $1

-- name: hold-of
SELECT selection, coalesce(first, 0), coalesce(last, 0), coalesce(batch, 0), count IS NOT NULL FROM hold WHERE resource = $1

-- name: put-hold
INSERT INTO hold (resource, task, first, last, batch, selection) VALUES ($1, $2, $3, $4, $5, $6)

-- name: freeze-hold
UPDATE hold SET count = $2, checksum = $3, span_first = $4, span_last = $5, fullest = $6 WHERE resource = $1

-- name: interval-held
SELECT 1 FROM hold WHERE task = $1 AND first <= $3 AND last >= $2 AND resource <> $4 LIMIT 1

-- name: verified-in-interval
SELECT coalesce(sum(part.reports), 0)::bigint FROM batch JOIN part ON part.batch = batch.id WHERE batch.task = $1 AND batch.bucket BETWEEN $2 AND $3

-- name: ready-batch
SELECT b.id, b.batch_id FROM batch AS b
WHERE b.task = $1 AND NOT b.closed AND b.batch_id IS NOT NULL AND (SELECT coalesce(sum(reports), 0) FROM part WHERE part.batch = b.id) >= $2
  AND NOT EXISTS (SELECT 1 FROM hold WHERE hold.batch = b.id)
  AND NOT EXISTS (SELECT 1 FROM job WHERE job.batch = b.id AND job.parked)
ORDER BY b.id LIMIT 1

-- name: parked-in-batch
SELECT 1 FROM job WHERE batch = $1 AND parked LIMIT 1

-- name: waiting-in-interval
SELECT coalesce(sum(reports), 0)::bigint FROM slice WHERE task = $1 AND bucket BETWEEN $2 AND $3

-- name: waiting-in-batch
SELECT coalesce(sum(reports), 0)::bigint FROM job WHERE batch = $1 AND state = 0

-- name: waiting-in-task
SELECT coalesce(sum(reports), 0)::bigint FROM slice WHERE task = $1

-- name: waiting-by-bucket
SELECT bucket, sum(reports)::bigint FROM slice WHERE task = $1 GROUP BY bucket ORDER BY bucket DESC LIMIT $2

-- name: waiting-by-batch
SELECT batch, sum(reports)::bigint FROM job WHERE batch = ANY($1::bigint[]) AND state = 0 GROUP BY batch
