-- name: root-newest
SELECT name FROM secret WHERE purpose = 4 ORDER BY name DESC LIMIT 1 FOR KEY SHARE

-- name: put-task-secret
INSERT INTO task_secret (task, root, box) SELECT id, $2, $3 FROM task WHERE task_id = $1

-- No row: no program may make roots yet.
-- name: roots-begun
SELECT 1 FROM vault WHERE purpose = 4

-- name: roots
SELECT name, made FROM secret WHERE purpose = 4 ORDER BY name

-- name: tasks-without-secret
SELECT task_id FROM task WHERE retired IS NULL AND NOT EXISTS (SELECT 1 FROM task_secret WHERE task_secret.task = task.id) ORDER BY id LIMIT $1

-- What another replica seals anew at the moment is its affair.
-- name: task-secrets-to-reseal
SELECT task_secret.task, task.task_id, root, box FROM task_secret JOIN task ON task.id = task_secret.task
WHERE root <> $1 ORDER BY task_secret.task LIMIT 500 FOR UPDATE OF task_secret SKIP LOCKED

-- name: reseal-task-secrets
UPDATE task_secret AS s SET root = $1, box = x.box FROM unnest($2::bigint[], $3::bytea[]) AS x (task, box) WHERE s.task = x.task

-- name: drop-task-secret
DELETE FROM task_secret WHERE task = $1
