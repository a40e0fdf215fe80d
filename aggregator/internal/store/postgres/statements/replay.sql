-- name: replay-turn
SELECT 1 FROM replay WHERE task = $1 FOR UPDATE

-- name: drop-expired-flights
DELETE FROM flight WHERE task = $1 AND (expires <= now() OR token = $2)

-- name: flights
SELECT ids, own FROM flight WHERE task = $1

-- name: put-flight
INSERT INTO flight (token, task, ids, own, expires) VALUES ($1, $2, $3, $4, now() + $5::bigint * interval '1 second')

-- name: drop-flight
DELETE FROM flight WHERE token = $1

-- name: put-run
INSERT INTO run (task, count, ids, pages, filter, veil, digest, sum) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: run-ids
SELECT id FROM run WHERE task = $1 ORDER BY id

-- name: run-heads
SELECT id, count, pages, filter, veil, digest, sum FROM run WHERE task = $1 AND id = ANY($2::bigint[])

-- A page has 4096 bytes, of which the server reads no others.
-- name: run-pages
SELECT x.run, x.page, substring(run.ids FROM (x.page * 4096 + 1)::integer FOR 4096)
FROM unnest($2::bigint[], $3::bigint[]) AS x (run, page) JOIN run ON run.id = x.run WHERE run.task = $1

-- name: run-ids-of
SELECT id, ids FROM run WHERE task = $1 AND id = ANY($2::bigint[])

-- name: drop-runs
DELETE FROM run WHERE task = $1 AND id = ANY($2::bigint[])
