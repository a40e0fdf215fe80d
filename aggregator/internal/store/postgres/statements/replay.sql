-- name: replay-turn
SELECT 1 FROM replay WHERE task = $1 FOR UPDATE

-- name: drop-expired-flights
DELETE FROM flight WHERE task = $1 AND expires <= now()

-- name: flights
SELECT ids FROM flight WHERE task = $1

-- name: put-flight
INSERT INTO flight (token, task, ids, expires) VALUES ($1, $2, $3, now() + $4::bigint * interval '1 second')

-- name: drop-flight
DELETE FROM flight WHERE token = $1

-- name: put-run
INSERT INTO run (task, low, high, count, ids, sum, digest) VALUES ($1, $2, $3, $4, $5, $6, $7)

-- name: run-ids
SELECT id FROM run WHERE task = $1 ORDER BY id

-- name: runs
SELECT id, low, high, ids, sum, digest FROM run WHERE task = $1 AND id = ANY($2::bigint[])

-- name: drop-runs
DELETE FROM run WHERE task = $1 AND id = ANY($2::bigint[])
