-- name: put-identity
INSERT INTO identity (only, resource_key, store_id, role, party) VALUES (1, ?1, ?2, ?3, ?4) ON CONFLICT (only) DO NOTHING

-- name: identity
SELECT resource_key, store_id, role, party FROM identity

-- name: age
SELECT epoch, age FROM identity

-- name: grow
UPDATE identity SET age = age + 1

-- name: keys-made
SELECT keys FROM identity

-- name: note-keys
UPDATE identity SET keys = 1

-- name: put-task
INSERT INTO task (task_id, config, mode, time_precision, min_batch) VALUES (?1, ?2, ?3, ?4, ?5)

-- name: tasks
SELECT id, task_id, config, mode, time_precision, min_batch, retired IS NOT NULL, swept, closed_in, coalesce(closed, 0), coalesce(ends, 0), over
FROM task LEFT JOIN registration ON registration.task = task.id ORDER BY id

-- name: count-acknowledged
UPDATE task SET acknowledged = acknowledged + ?2 WHERE id = ?1

-- name: count-aggregated
UPDATE task SET aggregated = aggregated + ?2 WHERE id = ?1

-- name: count-collected
UPDATE task SET collected = collected + ?2 WHERE id = ?1

-- name: count-rejected
INSERT INTO rejection (task, stage, code, reports) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (task, stage, code) DO UPDATE SET reports = reports + excluded.reports

-- name: counts
SELECT acknowledged, aggregated, collected,
  (SELECT coalesce(sum(reports), 0) FROM slice WHERE slice.task = task.id)
FROM task WHERE id = ?1

-- name: totals
SELECT coalesce(sum(acknowledged), 0), coalesce(sum(aggregated), 0), coalesce(sum(collected), 0),
  (SELECT coalesce(sum(reports), 0) FROM slice)
FROM task

-- name: total-rejections
SELECT stage, code, sum(reports) FROM rejection GROUP BY stage, code

-- name: rejections
SELECT stage, code, reports FROM rejection WHERE task = ?1

-- name: releases
SELECT task, first, last FROM release WHERE first IS NOT NULL ORDER BY task, first

-- name: holds
SELECT resource, task, first, last, count IS NOT NULL FROM hold WHERE first IS NOT NULL
