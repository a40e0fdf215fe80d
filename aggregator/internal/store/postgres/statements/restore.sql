-- name: total-at
SELECT total FROM release WHERE seq = $1

-- name: forget-task
INSERT INTO forgotten (task_id) SELECT $1::bytea WHERE NOT EXISTS (SELECT 1 FROM task WHERE task_id = $1) ON CONFLICT DO NOTHING

-- name: forgotten
SELECT 1 FROM forgotten WHERE task_id = $1

-- name: new-epoch
UPDATE identity SET epoch = $1, keys = false, marked = true, base = (SELECT seq FROM head)

-- name: drop-all-hpke-keys
DELETE FROM secret WHERE purpose = 1

-- name: empty-hpke-vault
UPDATE vault SET state = $1, version = version + 1, maker = '', until = 0 WHERE purpose = 1

-- name: mark-hpke-vault
UPDATE vault_mark SET version = (SELECT version FROM vault WHERE purpose = 1) WHERE purpose = 1

-- name: forget-replicas
DELETE FROM replica

-- name: waiting-of-tasks
SELECT task, sum(reports)::bigint FROM slice GROUP BY task ORDER BY task

-- The objects that the slices lie in are noted, as where a job ends.
-- name: drop-all-slices
WITH gone AS (DELETE FROM slice RETURNING object)
INSERT INTO ending (object) SELECT DISTINCT object FROM gone

-- name: drop-all-jobs
DELETE FROM job

-- name: drop-all-runs
DELETE FROM run

-- name: drop-all-noise
DELETE FROM noise

-- name: drop-all-flights
DELETE FROM flight

-- name: close-tasks
UPDATE task SET closed_in = $1 WHERE retired IS NULL
