-- name: latest-noise
SELECT id, first, last, entries, data_key, own FROM noise WHERE task = $1 ORDER BY last DESC

-- name: put-noise
INSERT INTO noise (task, first, last, entries, data_key, own) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id

-- name: put-noise-part
INSERT INTO noise_part (noise, part, box) VALUES ($1, $2, $3)

-- name: noise-part
SELECT box FROM noise_part WHERE noise = $1 AND part = $2

-- name: drop-noise
DELETE FROM noise WHERE id = ANY($1::bigint[])
