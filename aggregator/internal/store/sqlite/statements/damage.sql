-- name: put-damage
INSERT INTO damage (log_id, file, bytes, records, reports, exact) VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: damages
SELECT file, bytes, records, reports, exact FROM damage ORDER BY file

-- name: forget-damage
DELETE FROM damage WHERE file = ?1
