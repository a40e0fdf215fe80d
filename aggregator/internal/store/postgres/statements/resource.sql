-- name: find-resource
SELECT id, resource_id, body, digest, state, step, step_digest, response, problem, created, unfinished, answer_sum FROM resource
WHERE task = $1 AND kind = $2 AND resource_id = $3

-- name: lock-resource
SELECT id, resource_id, body, digest, state, step, step_digest, response, problem, created, unfinished, answer_sum FROM resource
WHERE task = $1 AND kind = $2 AND resource_id = $3 FOR UPDATE

-- name: find-digest
SELECT id, resource_id, body, digest, state, step, step_digest, response, problem, created, unfinished, answer_sum FROM resource
WHERE task = $1 AND kind = $2 AND digest = $3

-- name: count-pending
SELECT count(*) FROM (SELECT 1 FROM resource WHERE task = $1 AND kind = $2 AND state = 0 LIMIT $3) AS w

-- The tasks that have one waiting are found one by one, whatever the others have.
-- name: pending-resources
WITH RECURSIVE waiting AS (
  (SELECT task FROM resource WHERE kind = $1 AND state = 0 ORDER BY kind, task LIMIT 1)
  UNION ALL
  SELECT (SELECT r.task FROM resource AS r WHERE r.kind = $1 AND r.state = 0 AND r.task > waiting.task ORDER BY r.kind, r.task LIMIT 1)
  FROM waiting WHERE waiting.task IS NOT NULL)
SELECT p.task_id, p.resource_id FROM (
  SELECT t.task_id, r.resource_id, r.id, row_number() OVER (PARTITION BY r.task ORDER BY r.id) AS turn
  FROM waiting CROSS JOIN LATERAL (SELECT task_id FROM task WHERE id = waiting.task AND retired IS NULL LIMIT 1) AS t
  CROSS JOIN LATERAL (
    SELECT id, task, resource_id FROM resource WHERE kind = $1 AND task = waiting.task AND state = 0 ORDER BY id LIMIT $2) AS r) AS p
ORDER BY p.turn, p.id LIMIT $2

-- name: generation
SELECT deleted, answered FROM generation WHERE task = $1 AND kind = $2 AND digest = $3

-- name: put-resource
INSERT INTO resource (task, kind, resource_id, digest, body, selection, created) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING

-- name: drop-resource
DELETE FROM resource WHERE id = $1

-- name: count-deleted
INSERT INTO generation (task, kind, digest, deleted, answered) VALUES ($1, $2, $3, 1, $4)
ON CONFLICT (task, kind, digest) DO UPDATE SET deleted = generation.deleted + 1, answered = generation.answered OR excluded.answered

-- name: resource-failed
UPDATE resource SET state = 2, problem = $2, body = NULL WHERE id = $1 AND state = 0

-- name: forget-refused-shares
DELETE FROM resource WHERE task = $1 AND kind = 3 AND state = 2 AND id NOT IN (
  SELECT id FROM resource WHERE task = $1 AND kind = 3 AND state = 2 ORDER BY id DESC LIMIT $2)

-- name: drop-hold
DELETE FROM hold WHERE resource = $1

-- name: find-hold
SELECT selection, coalesce(count, 0), checksum, coalesce(span_first, 0), coalesce(span_last, 0), coalesce(fullest, 0)
FROM hold WHERE resource = $1

-- name: interval-closed
SELECT 1 FROM release WHERE task = $1 AND view = 0 AND first IS NOT NULL
  AND numrange((task::numeric * 65536 + view) * 9223372036854775808 + first, (task::numeric * 65536 + view) * 9223372036854775808 + last, '[]')
    && numrange($1::numeric * 65536 * 9223372036854775808 + $2, $1::numeric * 65536 * 9223372036854775808 + $3, '[]')
LIMIT 1

-- name: id-closed
SELECT 1 FROM release WHERE task = $1 AND view = 0 AND batch_id = $2

-- name: job-ready
UPDATE resource SET state = 1, response = $2, body = CASE WHEN $3 THEN NULL ELSE body END, unfinished = NOT $3
WHERE id = $1 AND state = 0

-- name: job-advance
UPDATE resource SET step = $2, step_digest = $3, response = $4, body = CASE WHEN $5 THEN NULL ELSE body END, unfinished = NOT $5
WHERE id = $1 AND state = 1

-- name: unfinished-jobs
SELECT count(*) FROM resource WHERE kind = 1 AND (state = 0 AND body IS NOT NULL OR unfinished) AND created < $1

-- name: answers-of-task
SELECT id, response FROM resource WHERE task = $1 AND kind = 1 AND state = 1 AND id > $2 ORDER BY id LIMIT $3
