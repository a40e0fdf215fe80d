-- name: put-view
INSERT INTO task_view (task, number, units) VALUES (?1, ?2, ?3)

-- name: views
SELECT task, units FROM task_view ORDER BY task, number

-- name: over
SELECT over FROM task WHERE id = ?1

-- name: end-views
UPDATE task SET over = ?2 WHERE id = ?1

-- name: view-closed
SELECT 1 FROM release WHERE task = ?1 AND view = ?2 AND first <= ?4 AND last >= ?3 LIMIT 1

-- name: drawn
SELECT view, first FROM release WHERE task = ?1 AND first <= ?3 AND last >= ?2

-- name: put-sum
INSERT INTO bucket_sum (batch, data_key, box) VALUES (?1, ?2, ?3)

-- name: find-sum
SELECT data_key, box FROM bucket_sum WHERE batch = ?1

-- name: drop-sum
DELETE FROM bucket_sum WHERE batch = ?1

-- name: held-before
SELECT 1 FROM hold WHERE task = ?1 AND first < ?2 LIMIT 1

-- name: left-before
SELECT 1 FROM batch WHERE task = ?1 AND bucket < ?2 AND (closed = 0 OR EXISTS (SELECT 1 FROM bucket_sum WHERE bucket_sum.batch = batch.id)) LIMIT 1

-- name: close-before
UPDATE batch SET closed = 1, share = NULL, sum = NULL WHERE task = ?1 AND bucket < ?2 AND closed = 0

-- name: drop-sums-before
DELETE FROM bucket_sum WHERE batch IN (SELECT id FROM batch WHERE task = ?1 AND bucket < ?2)

-- name: drop-sums
DELETE FROM bucket_sum WHERE batch IN (SELECT id FROM batch WHERE task = ?1)

-- name: sweep-sums
DELETE FROM bucket_sum WHERE batch IN (SELECT batch FROM bucket_sum JOIN batch ON bucket_sum.batch = batch.id WHERE batch.task = ?1 LIMIT ?2)

-- name: audit-sums
SELECT batch.task, batch.id, data_key FROM bucket_sum JOIN batch ON bucket_sum.batch = batch.id
