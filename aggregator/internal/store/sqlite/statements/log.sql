-- name: log-fate
SELECT fate FROM log WHERE fate > 0 AND (log_id = ?1 OR file = ?2) LIMIT 1

-- name: put-log
INSERT INTO log (log_id, file, fate) VALUES (?1, ?2, ?3)
ON CONFLICT (log_id) DO UPDATE SET file = excluded.file, fate = excluded.fate

-- name: begin-log
INSERT INTO log (log_id, file, fate) VALUES (?1, ?2, 0) ON CONFLICT (log_id) DO NOTHING

-- name: begun-logs
SELECT log_id, file FROM log WHERE fate = 0 ORDER BY file, log_id

-- name: forget-begun
DELETE FROM log WHERE fate = 0

-- name: forget-log
DELETE FROM log WHERE log_id = ?1
