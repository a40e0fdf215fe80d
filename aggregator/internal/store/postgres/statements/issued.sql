-- How often the database was restored, the time, the process that was seen last, and whether
-- the one that was seen last before is as it was then, or later.
-- name: issuer-incarnation
SELECT coalesce((SELECT epoch FROM identity), 0), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  coalesce(m.name, ''), coalesce(m.beats, 0), coalesce(m.seen, 0), EXISTS (SELECT 1 FROM member WHERE name = $1 AND beats >= $2)
FROM (VALUES (1)) AS one LEFT JOIN (SELECT name, beats, seen FROM member ORDER BY seen DESC LIMIT 1) AS m ON true

-- name: begin-issuance
INSERT INTO issuance (deployment, epoch) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- Whoever answers a request has its epoch's row, until it is entered.
-- name: lock-issuance
SELECT requests, state, known FROM issuance WHERE deployment = $1 AND epoch = $2 FOR UPDATE

-- name: issuance
SELECT requests, state, known FROM issuance WHERE deployment = $1 AND epoch = $2

-- name: find-issued
SELECT 1 FROM issued WHERE deployment = $1 AND epoch = $2 AND request = $3

-- name: put-issued
INSERT INTO issued (deployment, epoch, request) VALUES ($1, $2, $3)

-- name: count-issued
UPDATE issuance SET requests = requests + 1 WHERE deployment = $1 AND epoch = $2

-- name: end-issuance
UPDATE issuance SET state = 1 WHERE deployment = $1 AND epoch = $2 AND state = 0

-- name: issuances-over
UPDATE issuance SET state = 2 WHERE deployment = $1 AND epoch <= $2 AND state < 2

-- name: forget-issued
DELETE FROM issued WHERE (deployment, epoch, request) IN (SELECT deployment, epoch, request FROM issued WHERE deployment = $1 AND epoch <= $2 LIMIT $3)

-- name: doubt-issuances
UPDATE issuance SET known = false WHERE state = 0

-- name: doubt-coming-issuances
INSERT INTO issuance (deployment, epoch, known)
SELECT deployment, last + n, false FROM (SELECT deployment, max(epoch) AS last FROM issuance GROUP BY deployment) AS i, generate_series(1, 2) AS n
WHERE last + n <= 4294967295
ON CONFLICT DO NOTHING

-- name: audit-issuances
SELECT epoch, requests, (SELECT count(*) FROM issued AS r WHERE r.deployment = i.deployment AND r.epoch = i.epoch) AS there FROM issuance AS i WHERE state < 2 ORDER BY deployment, epoch
