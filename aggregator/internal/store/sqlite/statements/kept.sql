-- name: put-kept
INSERT INTO kept (resource, data_key, sealed_to, asked, peer, box) VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: find-kept
SELECT data_key, sealed_to, asked, peer, box FROM kept WHERE resource = ?1

-- name: kept-resealed
UPDATE kept SET sealed_to = ?3 WHERE resource = ?1 AND sealed_to = ?2

-- name: response-resealed
UPDATE resource SET response = ?3, answer_sum = ?4 WHERE id = ?1 AND state = 1 AND response = ?2

-- name: put-reseal
INSERT INTO reseal (task, kind, resource_id, whose, former, latter, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)

-- name: shares-of-task
SELECT (SELECT count(*) FROM kept JOIN resource ON kept.resource = resource.id WHERE resource.task = ?1),
  (SELECT count(*) FROM reseal WHERE task = ?1)

-- name: kept-under
SELECT (SELECT count(*) FROM kept WHERE data_key = ?1) + (SELECT count(*) FROM bucket_sum WHERE data_key = ?1)

-- name: data-key-set
SELECT id FROM data_key_set

-- name: put-data-key-set
INSERT INTO data_key_set (only, id) VALUES (1, ?1)

-- name: data-keys
SELECT serial, first, until, ended FROM data_key ORDER BY serial

-- name: data-key
SELECT first, until FROM data_key WHERE serial = ?1

-- name: put-data-key
INSERT INTO data_key (serial, first, until) VALUES (?1, ?2, ?3)

-- name: end-data-key
UPDATE data_key SET ended = 1 WHERE serial = ?1

-- name: audit-kept
SELECT task, resource_id FROM resource WHERE kind IN (2, 3) AND state <> 1 AND EXISTS (
  SELECT 1 FROM kept WHERE kept.resource = resource.id)
