-- Of the greatest interval that begins before a bucket or at it one need know the end only:
-- intervals that were released are disjoint, and so are those that are held.
-- name: shut-buckets
SELECT b FROM unnest($2::bigint[]) AS b
WHERE (SELECT last FROM release WHERE task = $1 AND first IS NOT NULL AND first <= b AND view = 0 ORDER BY first DESC LIMIT 1) >= b
  OR (SELECT last FROM hold WHERE task = $1 AND first <= b AND count IS NOT NULL ORDER BY first DESC LIMIT 1) >= b

-- name: shut-ids
SELECT i FROM unnest($2::bytea[]) AS i
WHERE EXISTS (SELECT 1 FROM release WHERE task = $1 AND view = 0 AND batch_id = i)
  OR EXISTS (SELECT 1 FROM batch JOIN hold ON hold.batch = batch.id WHERE batch.task = $1 AND batch.batch_id = i AND hold.count IS NOT NULL)

-- name: put-buckets
INSERT INTO batch (task, bucket) SELECT $1, b FROM unnest($2::bigint[]) AS b ORDER BY b ON CONFLICT (task, bucket) DO NOTHING

-- name: put-ids
INSERT INTO batch (task, batch_id) SELECT $1, i FROM unnest($2::bytea[]) AS i ORDER BY i ON CONFLICT (task, batch_id) DO NOTHING

-- name: find-buckets
SELECT id, bucket FROM batch WHERE task = $1 AND bucket = ANY($2::bigint[])

-- name: find-ids
SELECT id, batch_id FROM batch WHERE task = $1 AND batch_id = ANY($2::bytea[])

-- It says how many parts there were before, up to a number.
-- name: put-part
INSERT INTO part (batch, reports, first_time, last_time, checksum, data_key, own, share, sum) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
RETURNING (SELECT count(*) FROM (SELECT 1 FROM part WHERE batch = $1 LIMIT $10) AS p)

-- So does this of tallies.
-- name: put-tally
INSERT INTO tally (task, kind, code, reports)
SELECT $1, x.kind, x.code, x.reports FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS x (kind, code, reports)
RETURNING (SELECT count(*) FROM (SELECT 1 FROM tally WHERE task = $1 LIMIT $5) AS t)

-- name: sum-tallies
WITH gone AS (DELETE FROM tally WHERE task = $1 RETURNING kind, code, reports)
INSERT INTO tally (task, kind, code, reports) SELECT $1, kind, code, sum(reports)::bigint FROM gone GROUP BY kind, code

-- name: batch-name
SELECT closed, bucket, batch_id FROM batch WHERE id = $1

-- name: parts-to-sum
SELECT batch, reports, first_time, last_time, checksum, data_key, own, share, sum, id FROM part WHERE batch = $1 ORDER BY id LIMIT $2

-- name: drop-parts-of
DELETE FROM part WHERE id = ANY($1::bigint[])
