-- name: forget-task
INSERT INTO forgotten (task_id) VALUES (?1) ON CONFLICT (task_id) DO NOTHING

-- name: forgotten
SELECT 1 FROM forgotten WHERE task_id = ?1

-- name: registry-change
UPDATE identity SET registry = registry + 1

-- name: registry-head
SELECT registry FROM identity

-- name: put-registration
INSERT INTO registration (task, change, form, made, sum, terms, first, tenant, source, added_by, added, begins, ends, kem, signed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)

-- name: amend-registration
UPDATE registration SET change = ?2, terms = ?3 WHERE task = ?1

-- name: close-registration
UPDATE registration SET change = ?2, closed = ?3, closed_by = ?4, closed_why = ?5 WHERE task = ?1

-- name: registration
SELECT task_id, form, sum, first, tenant, source, added_by, added, begins, ends, kem, signed, change, closed, coalesce(closed_by, ''), coalesce(closed_why, ''), made, terms
FROM registration JOIN task ON task.id = registration.task WHERE registration.task = ?1

-- name: registrations
SELECT task_id, form, sum, first, tenant, source, added_by, added, begins, ends, kem, signed, change, closed, coalesce(closed_by, ''), coalesce(closed_why, ''), NULL, NULL
FROM registration JOIN task ON task.id = registration.task WHERE change > ?1 ORDER BY change LIMIT ?2

-- name: count-live
SELECT count(*) FROM registration WHERE source = 3 AND added_by = ?1 AND closed IS NULL AND ends > ?2

-- name: live-tasks
SELECT count(*) FROM registration JOIN task ON task.id = registration.task WHERE closed IS NULL AND (ends IS NULL OR ends > ?1) AND closed_in = 0

-- name: count-added
SELECT count(*), coalesce(min(added), 0) FROM registration WHERE source = 3 AND added_by = ?1 AND added > ?2

-- name: sweep-registration
UPDATE registration SET made = NULL, terms = NULL WHERE task = ?1 AND made IS NOT NULL

-- name: audit-registry
SELECT coalesce(max(change), 0), (SELECT registry FROM identity) FROM registration

-- name: audit-registrations
SELECT task, sum, made FROM registration WHERE made IS NOT NULL

-- name: stored-bytes
SELECT (SELECT coalesce(sum(size), 0) FROM slice) + (SELECT coalesce(sum(size), 0) FROM run) + (SELECT coalesce(sum(size), 0) FROM noise)
  + (SELECT coalesce(sum(length(share)), 0) FROM batch WHERE closed = 0) + (SELECT coalesce(sum(length(box)), 0) FROM bucket_sum)
