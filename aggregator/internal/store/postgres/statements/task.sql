-- name: put-identity
INSERT INTO identity (resource_key, store_id, role, party) VALUES ($1, $2, $3, $4) ON CONFLICT (one) DO NOTHING

-- name: identity
SELECT resource_key, role, party FROM identity

-- name: put-task
WITH made AS (
  INSERT INTO task (task_id, config, mode, time_precision, min_batch) VALUES ($1, $2, $3, $4, $5)
  ON CONFLICT (task_id) DO NOTHING RETURNING id)
INSERT INTO replay (task) SELECT id FROM made

-- name: task-config
SELECT config, mode, time_precision, min_batch FROM task WHERE task_id = $1

-- name: tasks
SELECT task_id FROM task ORDER BY task_id

-- name: task
SELECT id, mode, min_batch, retired IS NOT NULL, swept, closed_in,
  (SELECT closed FROM registration WHERE registration.task = task.id),
  (SELECT root::bytea || box FROM task_secret WHERE task_secret.task = task.id) FROM task WHERE task_id = $1

-- name: share-task
SELECT id, mode, min_batch, retired IS NOT NULL, swept, closed_in,
  (SELECT closed FROM registration WHERE registration.task = task.id),
  (SELECT root::bytea || box FROM task_secret WHERE task_secret.task = task.id) FROM task WHERE task_id = $1 FOR KEY SHARE

-- name: task-in-turn
SELECT id, mode, min_batch, retired IS NOT NULL, swept, closed_in,
  (SELECT closed FROM registration WHERE registration.task = task.id),
  (SELECT root::bytea || box FROM task_secret WHERE task_secret.task = task.id) FROM task WHERE task_id = $1 FOR NO KEY UPDATE

-- name: exclude-task
SELECT id, mode, min_batch, retired IS NOT NULL, swept, closed_in,
  (SELECT closed FROM registration WHERE registration.task = task.id),
  (SELECT root::bytea || box FROM task_secret WHERE task_secret.task = task.id) FROM task WHERE task_id = $1 FOR UPDATE
