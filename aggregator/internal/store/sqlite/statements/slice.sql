-- name: put-object
INSERT INTO object (name, slices, since) VALUES (?1, ?2, ?3)

-- name: object-named
SELECT 1 FROM object WHERE name = ?1

-- name: put-slice
INSERT INTO slice (object, start, size, sum, task, bucket, reports, duplicates, came, pieces)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)

-- name: drop-slice
DELETE FROM slice WHERE id = ?1

-- name: drop-slices-of-job
DELETE FROM slice WHERE job = ?1

-- name: late-slices
SELECT id, reports FROM slice WHERE task = ?1 AND bucket BETWEEN ?2 AND ?3 AND job IS NULL

-- name: oldest-free
SELECT task, bucket FROM slice
WHERE job IS NULL AND NOT EXISTS (
  SELECT 1 FROM hold WHERE hold.task = slice.task AND count IS NOT NULL AND first <= bucket AND last >= bucket)
  AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = slice.task AND retired IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM json_each(?1) AS x WHERE x.value ->> 0 = slice.task AND bucket BETWEEN x.value ->> 1 AND x.value ->> 2)
  AND NOT EXISTS (SELECT 1 FROM conduct WHERE conduct.task = slice.task AND since IS NOT NULL)
ORDER BY id LIMIT 1

-- name: next-free
SELECT id, reports, size FROM slice WHERE task = ?1 AND bucket = ?2 AND job IS NULL ORDER BY id LIMIT ?3

-- name: give-slice
UPDATE slice SET job = ?2 WHERE id = ?1

-- name: slices-of-job
SELECT slice.id, object.name, sum, task, bucket, reports, duplicates, came, pieces
FROM slice JOIN object ON slice.object = object.id WHERE job = ?1 ORDER BY slice.id

-- name: slices-after
SELECT slice.id, object.name, sum, task, bucket, reports, duplicates, came, pieces
FROM slice JOIN object ON slice.object = object.id WHERE slice.id > ?1 ORDER BY slice.id LIMIT ?2

-- name: slices-to-move
SELECT slice.id, object.name, sum, slice.task, slice.bucket, slice.reports, duplicates, came, pieces
FROM slice JOIN object ON slice.object = object.id LEFT JOIN job ON slice.job = job.id
WHERE object.id = ?1 AND job.lease_token IS NULL ORDER BY slice.id

-- name: slice-to-move
SELECT slice.id FROM slice JOIN object ON slice.object = object.id LEFT JOIN job ON slice.job = job.id
WHERE object.name = ?1 AND start = ?2 AND sum = ?3 AND job.lease_token IS NULL

-- name: move-slice
UPDATE slice SET object = ?2, start = ?3, pieces = ?4 WHERE id = ?1

-- name: objects-before
SELECT object.id, object.slices > count(*), sum(size) FROM object JOIN slice ON slice.object = object.id
WHERE NOT (since >= ?1 AND since <= ?2) GROUP BY object.id ORDER BY object.id

-- name: waiting-in-interval
SELECT coalesce(sum(reports), 0) FROM slice WHERE task = ?1 AND bucket BETWEEN ?2 AND ?3

-- name: live-objects
SELECT name FROM object
