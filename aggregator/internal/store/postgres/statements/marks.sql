-- name: marked
SELECT store_id, epoch, marked, base FROM identity

-- name: begin-marks
UPDATE identity SET marked = true, base = (SELECT seq FROM head) WHERE NOT marked

-- name: age
SELECT age, word FROM clock WHERE age > 0

-- name: save-time-and-age
INSERT INTO clock (seen, age, word) VALUES ($1, 1, $2)
ON CONFLICT (one) DO UPDATE SET seen = excluded.seen, age = clock.age + 1, word = excluded.word RETURNING age

-- name: head-now
SELECT seq FROM head

-- name: releases-to-mark
SELECT r.seq, r.total, t.task_id FROM release AS r JOIN task AS t ON t.id = r.task WHERE r.seq > $1 ORDER BY r.seq LIMIT $2
