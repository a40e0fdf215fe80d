-- name: share-tasks
SELECT task_id, id, retired IS NOT NULL FROM task WHERE task_id = ANY($1::bytea[]) ORDER BY id FOR KEY SHARE

-- As for commits: of the greatest interval that begins before a bucket, or at it, one need
-- know the end only. A task that was closed takes nothing either.
-- name: shut-places
SELECT p.n, ended.yes FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS p (task, bucket, n)
CROSS JOIN LATERAL (SELECT (SELECT closed FROM registration WHERE registration.task = p.task) IS NOT NULL AS yes) AS ended
WHERE ended.yes
  OR (SELECT last FROM release WHERE release.task = p.task AND first IS NOT NULL AND first <= p.bucket AND view = 0 ORDER BY first DESC LIMIT 1) >= p.bucket
  OR (SELECT last FROM hold WHERE hold.task = p.task AND first <= p.bucket AND count IS NOT NULL ORDER BY first DESC LIMIT 1) >= p.bucket

-- name: put-object
INSERT INTO object (name, slices, body) VALUES ($1, $2, $3) RETURNING id

-- A row that was put has no slices.
-- name: take-object
UPDATE object SET slices = slices + $2 WHERE name = $1 AND body IS NOT NULL RETURNING id

-- An object, its slices, and what is counted of its tasks.
-- name: put-upload
WITH made AS (INSERT INTO object (name, slices, body) VALUES ($1, $2, $3) RETURNING id),
sliced AS (
  INSERT INTO slice (object, pieces, size, sum, task, bucket, reports, duplicates, came)
  SELECT made.id, s.pieces, s.size, s.sum, s.task, s.bucket, s.reports, s.duplicates, s.came
  FROM made, unnest($4::bytea[], $5::bigint[], $6::bytea[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
    WITH ORDINALITY AS s (pieces, size, sum, task, bucket, reports, duplicates, came, n)
  ORDER BY s.n)
INSERT INTO tally (task, kind, code, reports)
SELECT x.task, x.kind, x.code, x.reports FROM unnest($12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[]) AS x (task, kind, code, reports)

-- name: put-tombstones
INSERT INTO tombstone (object) SELECT convert_from(n, 'UTF8') FROM unnest($1::bytea[]) AS n ON CONFLICT (object) DO NOTHING

-- name: slices-of-jobs
SELECT slice.job, object.name, slice.pieces, slice.bucket, slice.reports, slice.duplicates, slice.sum, slice.came
FROM slice JOIN object ON slice.object = object.id WHERE slice.job = ANY($1::bigint[]) ORDER BY slice.job, slice.id

-- name: slices-after
SELECT slice.id, task.task_id, object.name, slice.pieces, slice.bucket, slice.reports, slice.duplicates, slice.sum, slice.came
FROM slice JOIN object ON slice.object = object.id JOIN task ON slice.task = task.id WHERE slice.id > $1 ORDER BY slice.id LIMIT $2

-- name: end-slices
WITH gone AS (DELETE FROM slice WHERE job = $1 RETURNING object)
INSERT INTO ending (object) SELECT DISTINCT object FROM gone

-- name: end-those-slices
WITH gone AS (DELETE FROM slice WHERE job = $1 AND id = ANY($2::bigint[]) RETURNING object)
INSERT INTO ending (object) SELECT DISTINCT object FROM gone

-- name: endings
SELECT id, object FROM ending ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED

-- name: drop-endings
DELETE FROM ending WHERE id = ANY($1::bigint[])

-- name: drop-objects
DELETE FROM object WHERE id = ANY($1::bigint[]) AND NOT EXISTS (SELECT 1 FROM slice WHERE slice.object = object.id) RETURNING name, body IS NULL

-- name: tombstones
SELECT object FROM tombstone WHERE since <= now() - $1::bigint * interval '1 millisecond' ORDER BY since LIMIT $2

-- name: drop-tombstone
DELETE FROM tombstone WHERE object = $1

-- name: live-objects
SELECT name FROM object WHERE EXISTS (SELECT 1 FROM slice WHERE slice.object = object.id) ORDER BY id

-- Of each object after one, how many slices were named in it, how many of them wait, of what
-- size, and whether it is old enough.
-- name: objects-after
SELECT o.id, o.slices, s.n, s.size, o.since < to_timestamp($2::bigint)
FROM (SELECT id, slices, since FROM object WHERE id > $1 ORDER BY id LIMIT $3) AS o
CROSS JOIN LATERAL (SELECT count(*) AS n, coalesce(sum(size), 0)::bigint AS size FROM slice WHERE slice.object = o.id) AS s
ORDER BY o.id

-- name: idle-slices-of-objects
SELECT task.task_id, object.name, slice.pieces, slice.bucket, slice.reports, slice.duplicates, slice.sum, slice.came
FROM slice JOIN object ON slice.object = object.id JOIN task ON slice.task = task.id LEFT JOIN job ON slice.job = job.id
WHERE slice.object = ANY($1::bigint[]) AND job.lease_token IS NULL ORDER BY slice.object, slice.id LIMIT $2

-- name: find-object
SELECT id FROM object WHERE name = $1

-- name: find-slice
SELECT slice.id, slice.object, coalesce(slice.job, 0) FROM slice JOIN object ON slice.object = object.id
WHERE object.name = $1 AND slice.pieces = $2 AND slice.sum = $3 FOR UPDATE OF slice

-- name: idle-job
SELECT 1 FROM job WHERE id = $1 AND lease_token IS NULL FOR UPDATE SKIP LOCKED

-- name: move-slice
UPDATE slice SET object = $2, pieces = $3, size = $4 WHERE id = $1

-- name: note-ending
INSERT INTO ending (object) VALUES ($1)

-- name: put-body
INSERT INTO object (name, slices, body) VALUES ($1, 0, $2) ON CONFLICT (name) DO NOTHING

-- name: read-body
SELECT substring(body FROM $2::integer + 1 FOR $3::integer), length(body) FROM object WHERE name = $1 AND body IS NOT NULL

-- name: size-of-body
SELECT length(body) FROM object WHERE name = $1 AND body IS NOT NULL

-- name: drop-body
DELETE FROM object WHERE name = $1 AND body IS NOT NULL AND NOT EXISTS (SELECT 1 FROM slice WHERE slice.object = object.id)

-- name: list-bodies
SELECT name, length(body) FROM object WHERE name >= $1 AND name > $2 AND name < $3 AND body IS NOT NULL ORDER BY name LIMIT $4

-- name: stored-objects
SELECT name FROM object WHERE body IS NULL AND name > $1 ORDER BY name LIMIT $2

-- name: waiting-in-object
SELECT object.id FROM object JOIN slice ON slice.object = object.id WHERE name = $1 LIMIT 1

-- name: buried-object
SELECT 1 FROM tombstone WHERE object = $1

-- name: put-strays
INSERT INTO stray (object) SELECT convert_from(n, 'UTF8') FROM unnest($1::bytea[]) AS n
WHERE NOT EXISTS (SELECT 1 FROM object WHERE name = convert_from(n, 'UTF8')) AND NOT EXISTS (SELECT 1 FROM tombstone WHERE object = convert_from(n, 'UTF8') COLLATE "default")
ORDER BY n ON CONFLICT (object) DO NOTHING

-- Those of a part of the names that are named by now, under a tombstone, or gone.
-- name: drop-known-strays
DELETE FROM stray WHERE object > $1 AND object <= $2 AND (
  EXISTS (SELECT 1 FROM object WHERE name = stray.object) OR EXISTS (SELECT 1 FROM tombstone WHERE tombstone.object = stray.object COLLATE "default")
  OR object <> ALL (SELECT convert_from(n, 'UTF8') FROM unnest($3::bytea[]) AS n))

-- name: old-strays
SELECT object FROM stray WHERE object > $1 AND object <= $2 AND seen <= now() - $3::bigint * interval '1 millisecond' ORDER BY object

-- It waits for a transaction that names one of them, and passes over what that named.
-- name: claim-strays
INSERT INTO object (name, slices) SELECT convert_from(n, 'UTF8'), 0 FROM unnest($1::bytea[]) AS n ORDER BY n
ON CONFLICT (name) DO NOTHING RETURNING id, name

-- name: drop-claims
DELETE FROM object WHERE id = ANY($1::bigint[]) AND slices = 0 AND body IS NULL

-- name: drop-strays
DELETE FROM stray WHERE object = ANY (SELECT convert_from(n, 'UTF8') FROM unnest($1::bytea[]) AS n)

-- name: drop-unnamed-rows
DELETE FROM object WHERE slices = 0 AND id = ANY (ARRAY(
  SELECT id FROM object WHERE slices = 0 AND body IS NOT NULL AND since <= now() - $1::bigint * interval '1 millisecond' ORDER BY since LIMIT $2))
