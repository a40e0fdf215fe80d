-- name: begin-spent-rounds
INSERT INTO spent_round (task, round) SELECT $1, x.round FROM unnest($2::bigint[]) AS x (round) ORDER BY x.round ON CONFLICT DO NOTHING

-- Whoever spends in a round has its row, until it is done; of several in one order, so that
-- two replicas never wait for each other. Merges share it with them.
-- name: lock-spent-rounds
SELECT round, marks, sum, state FROM spent_round WHERE task = $1 AND round = ANY($2::bigint[]) ORDER BY round FOR NO KEY UPDATE

-- name: share-spent-round
SELECT state FROM spent_round WHERE task = $1 AND round = $2 FOR KEY SHARE

-- name: exclude-spent-round
SELECT 1 FROM spent_round WHERE task = $1 AND round = $2 FOR UPDATE

-- name: save-spent-rounds
UPDATE spent_round AS r SET marks = x.marks, sum = x.sum FROM unnest($2::bigint[], $3::bigint[], $4::bytea[]) AS x (round, marks, sum)
WHERE r.task = $1 AND r.round = x.round

-- name: put-spent-run
INSERT INTO spent_run (task, round, count, entries, pages, filter, veil, digest, sum) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: spent-runs
SELECT id FROM spent_run WHERE task = $1 AND round = $2 ORDER BY id

-- name: spent-run-heads
SELECT id, count, pages, filter, veil, digest, sum FROM spent_run WHERE task = $1 AND round = $2 AND id = ANY($3::bigint[])

-- A page has 4096 bytes, of which the server reads no others.
-- name: spent-run-pages
SELECT x.run, x.page, substring(r.entries FROM (x.page * 4096 + 1)::integer FOR 4096)
FROM unnest($3::bigint[], $4::bigint[]) AS x (run, page) JOIN spent_run AS r ON r.id = x.run WHERE r.task = $1 AND r.round = $2

-- name: spent-run-entries
SELECT id, entries FROM spent_run WHERE task = $1 AND round = $2 AND id = ANY($3::bigint[])

-- name: drop-spent-runs
DELETE FROM spent_run WHERE task = $1 AND round = $2 AND id = ANY($3::bigint[])

-- name: spent-rounds
SELECT round FROM spent_round WHERE task = $1 AND state < 2 ORDER BY round LIMIT $2

-- name: forget-round
DELETE FROM spent_run WHERE id IN (SELECT id FROM spent_run WHERE task = $1 AND round = $2 ORDER BY id LIMIT $3)

-- name: round-over
UPDATE spent_round SET state = $3 WHERE task = $1 AND round = $2 AND state < $3

-- name: put-round-over
INSERT INTO spent_round (task, round, state) VALUES ($1, $2, $3) ON CONFLICT (task, round) DO UPDATE SET state = excluded.state

-- name: spent-in-rounds
SELECT round, marks FROM spent_round WHERE task = $1 AND round BETWEEN $2 AND $3 AND marks > 0 ORDER BY round

-- name: sweep-spent-runs
DELETE FROM spent_run WHERE id IN (SELECT id FROM spent_run WHERE task = $1 ORDER BY id LIMIT $2)

-- name: sweep-spent-rounds
DELETE FROM spent_round WHERE (task, round) IN (SELECT task, round FROM spent_round WHERE task = $1 LIMIT $2)

-- name: drop-all-spent-runs
DELETE FROM spent_run

-- name: end-all-rounds
UPDATE spent_round SET state = 2 WHERE state < 2

-- name: audit-spent
SELECT round, marks, sum, state FROM spent_round WHERE task = $1 ORDER BY round

-- name: audit-stray-spent
SELECT DISTINCT round FROM spent_run WHERE task = $1 AND NOT EXISTS (
  SELECT 1 FROM spent_round AS r WHERE r.task = spent_run.task AND r.round = spent_run.round AND r.state < 2) ORDER BY round
