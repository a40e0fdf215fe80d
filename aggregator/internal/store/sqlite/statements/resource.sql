-- name: find-resource
SELECT id, resource_id, body, digest, selection, state, step, step_digest, response, problem, created, unfinished, answer_sum FROM resource
WHERE task = ?1 AND kind = ?2 AND resource_id = ?3

-- name: find-digest
SELECT id, resource_id, body, digest, selection, state, step, step_digest, response, problem, created, unfinished, answer_sum FROM resource
WHERE task = ?1 AND kind = ?2 AND digest = ?3

-- name: count-pending
SELECT count(*) FROM resource WHERE task = ?1 AND kind = ?2 AND state = 0

-- name: answers-of-task
SELECT id, response FROM resource WHERE task = ?1 AND kind = 1 AND state = 1 AND id > ?2 ORDER BY id LIMIT ?3

-- name: pending-resources
SELECT task, resource_id FROM (
  SELECT id, task, resource_id, row_number() OVER (PARTITION BY task ORDER BY id) AS turn FROM resource
  WHERE kind = ?1 AND state = 0 AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = resource.task AND retired IS NOT NULL))
ORDER BY turn, id LIMIT ?2

-- name: generation
SELECT deleted, answered FROM generation WHERE task = ?1 AND kind = ?2 AND digest = ?3

-- name: put-resource
INSERT INTO resource (task, kind, resource_id, digest, body, selection, created) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)

-- name: drop-resource
DELETE FROM resource WHERE id = ?1

-- name: count-deleted
INSERT INTO generation (task, kind, digest, deleted, answered) VALUES (?1, ?2, ?3, 1, ?4)
ON CONFLICT (task, kind, digest) DO UPDATE SET deleted = deleted + 1, answered = max(answered, excluded.answered)

-- name: resource-ready
UPDATE resource SET state = 1, response = ?2, answer_sum = ?3 WHERE id = ?1 AND state = 0

-- name: job-ready
UPDATE resource SET state = 1, response = ?2, body = iif(?3, NULL, body), unfinished = NOT ?3 WHERE id = ?1 AND state = 0

-- name: job-advance
UPDATE resource SET step = ?2, step_digest = ?3, response = ?4, body = iif(?5, NULL, body),
  unfinished = NOT ?5 WHERE id = ?1 AND state = 1

-- name: resource-failed
UPDATE resource SET state = 2, problem = ?2, body = NULL WHERE id = ?1 AND state = 0

-- name: forget-refused-shares
DELETE FROM resource WHERE task = ?1 AND kind = 3 AND state = 2 AND id NOT IN (
  SELECT id FROM resource WHERE task = ?1 AND kind = 3 AND state = 2 ORDER BY id DESC LIMIT ?2)

-- name: find-hold
SELECT batch, selection, first, last, count, checksum, span_first, span_last, fullest FROM hold WHERE resource = ?1

-- name: put-hold
INSERT INTO hold (resource, task, first, last, batch, selection) VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: freeze-hold
UPDATE hold SET count = ?2, checksum = ?3, span_first = ?4, span_last = ?5, fullest = ?6 WHERE resource = ?1 AND count IS NULL

-- name: drop-hold
DELETE FROM hold WHERE resource = ?1
