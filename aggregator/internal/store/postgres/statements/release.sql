-- name: head
SELECT seq, total FROM head FOR UPDATE

-- name: move-head
UPDATE head SET seq = $1, total = $2 WHERE seq = $1 - 1

-- name: last-release-of-task
SELECT position, chain FROM release WHERE task = $1 ORDER BY position DESC LIMIT 1

-- name: release-at
SELECT coalesce(first, 0), coalesce(last, 0), batch_id, count, answer, chain FROM release WHERE task = $1 AND position = $2

-- name: releases-after
SELECT seq, coalesce(first, 0), coalesce(last, 0), batch_id, count, checksum FROM release
WHERE task = $1 AND seq > $2 ORDER BY seq LIMIT $3

-- name: frozen
SELECT selection, count, checksum FROM hold WHERE task = $1 AND count IS NOT NULL ORDER BY resource

-- name: put-release
INSERT INTO release (seq, task, kind, resource_id, first, last, batch_id, count, minimum, checksum, debit, position, answer, chain, total)
SELECT $1, id, $3, $4, $5, $6, $7, $8, min_batch, $9, $10, $11, $12, $13, $14 FROM task WHERE id = $2

-- name: resource-ready
UPDATE resource SET state = 1, response = $2, answer_sum = $3 WHERE id = $1 AND state = 0
