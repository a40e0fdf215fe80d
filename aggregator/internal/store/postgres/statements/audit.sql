-- name: audit-tasks
SELECT task_id FROM task ORDER BY id

-- name: audit-releases
SELECT t.task_id, r.resource_id, r.view, coalesce(r.first, 0), coalesce(r.last, 0), r.batch_id, r.count, r.minimum, r.seq, r.position, r.answer, r.chain, r.total
FROM release AS r JOIN task AS t ON r.task = t.id ORDER BY r.seq

-- name: audit-head
SELECT seq, total FROM head

-- name: audit-batches
SELECT id, closed, coalesce(verified, 0), coalesce(first_time, 0), coalesce(last_time, 0), checksum, bucket, batch_id FROM batch
WHERE task = $1 ORDER BY bucket, id

-- name: audit-parts
SELECT part.batch, part.reports, part.first_time, part.last_time, part.checksum, data_key, own, share, sum FROM part
JOIN batch ON part.batch = batch.id WHERE batch.task = $1

-- name: audit-released
SELECT kind, resource_id, coalesce(first, 0), coalesce(last, 0), batch_id, count, checksum FROM release
WHERE task = $1 AND view = 0 ORDER BY seq

-- name: audit-responses
SELECT resource_id, response, answer_sum, EXISTS (
  SELECT 1 FROM release WHERE release.task = resource.task AND release.kind = resource.kind AND release.resource_id = resource.resource_id)
FROM resource WHERE task = $1 AND state = 1 AND kind IN (2, 3) ORDER BY id

-- name: audit-strays
SELECT resource_id, kept.resource IS NOT NULL FROM resource LEFT JOIN kept ON kept.resource = resource.id LEFT JOIN hold ON hold.resource = resource.id
WHERE resource.task = $1 AND (kept.resource IS NOT NULL AND state <> 1 OR hold.resource IS NOT NULL AND (state <> 0 OR kind <> 2)) ORDER BY resource.id
