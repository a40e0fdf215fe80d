-- name: put-kept
INSERT INTO kept (resource, data_key, sealed_to, asked, peer, box, own) VALUES ($1, $2, $3, $4, $5, $6, $7)

-- name: find-kept
SELECT data_key, sealed_to, asked, peer, box, own FROM kept WHERE resource = $1

-- name: kept-resealed
UPDATE kept SET sealed_to = $3 WHERE resource = $1 AND sealed_to = $2

-- name: response-resealed
UPDATE resource SET response = $3, answer_sum = $4 WHERE id = $1 AND state = 1 AND response = $2

-- name: put-reseal
INSERT INTO reseal (task, kind, resource_id, whose, former, latter, at) VALUES ($1, $2, $3, $4, $5, $6, $7)

-- name: shares-of-task
SELECT (SELECT count(*) FROM kept JOIN resource ON kept.resource = resource.id WHERE resource.task = $1),
  (SELECT count(*) FROM reseal WHERE task = $1)

-- What waits to be released needs its key as well, and what later releases lean on.
-- name: kept-under
SELECT (SELECT count(*) FROM kept WHERE data_key = $1) + (SELECT count(*) FROM part WHERE data_key = $1)
  + (SELECT count(*) FROM noise WHERE data_key = $1)

-- name: put-data-key-set
INSERT INTO data_key_set (id) VALUES ($1) ON CONFLICT (one) DO NOTHING

-- name: data-key-set
SELECT id FROM data_key_set

-- name: data-keys
SELECT serial, first, until, ended FROM data_key ORDER BY serial

-- name: data-key
SELECT first, until FROM data_key WHERE serial = $1

-- name: put-data-key
INSERT INTO data_key (serial, first, until) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING

-- name: end-data-key
UPDATE data_key SET ended = true WHERE serial = $1
