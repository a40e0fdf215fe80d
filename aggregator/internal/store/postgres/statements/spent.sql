-- name: begin-spent-rounds
INSERT INTO spent_round (task, round) SELECT $1, x.round FROM unnest($2::bigint[]) AS x (round) ORDER BY x.round ON CONFLICT DO NOTHING

-- Whoever spends in a round has its row, until it is done; of several in one order, so that
-- two replicas never wait for each other.
-- name: lock-spent-rounds
SELECT round, marks, sum, state FROM spent_round WHERE task = $1 AND round = ANY($2::bigint[]) ORDER BY round FOR UPDATE

-- name: save-spent-rounds
UPDATE spent_round AS r SET marks = x.marks, sum = x.sum FROM unnest($2::bigint[], $3::bigint[], $4::bytea[]) AS x (round, marks, sum)
WHERE r.task = $1 AND r.round = x.round

-- name: spent-round
SELECT marks, sum, state FROM spent_round WHERE task = $1 AND round = $2

-- name: spend
INSERT INTO spent (task, round, mark, report)
SELECT $1, x.round, x.mark, x.report FROM unnest($2::bigint[], $3::bytea[], $4::bytea[]) WITH ORDINALITY AS x (round, mark, report, n) ORDER BY x.n
ON CONFLICT DO NOTHING RETURNING round, mark, report

-- name: spenders
SELECT x.n, s.report FROM unnest($2::bigint[], $3::bytea[]) WITH ORDINALITY AS x (round, mark, n)
JOIN spent AS s ON s.task = $1 AND s.round = x.round AND s.mark = x.mark

-- name: spent-of-round
SELECT mark, report FROM spent WHERE task = $1 AND round = $2

-- name: spent-rounds
SELECT round FROM spent_round WHERE task = $1 AND state < 2 ORDER BY round LIMIT $2

-- name: forget-round
DELETE FROM spent WHERE (task, round, mark) IN (SELECT task, round, mark FROM spent WHERE task = $1 AND round = $2 LIMIT $3)

-- name: round-over
UPDATE spent_round SET state = $3 WHERE task = $1 AND round = $2 AND state < $3

-- name: put-round-over
INSERT INTO spent_round (task, round, state) VALUES ($1, $2, $3) ON CONFLICT (task, round) DO UPDATE SET state = excluded.state

-- name: spent-in-rounds
SELECT round, marks FROM spent_round WHERE task = $1 AND round BETWEEN $2 AND $3 AND marks > 0 ORDER BY round

-- name: sweep-spent
DELETE FROM spent WHERE (task, round, mark) IN (SELECT task, round, mark FROM spent WHERE task = $1 LIMIT $2)

-- name: sweep-spent-rounds
DELETE FROM spent_round WHERE (task, round) IN (SELECT task, round FROM spent_round WHERE task = $1 LIMIT $2)

-- name: audit-spent
SELECT round, marks, sum, state FROM spent_round WHERE task = $1 ORDER BY round

-- name: audit-stray-spent
SELECT DISTINCT round FROM spent WHERE task = $1 AND NOT EXISTS (SELECT 1 FROM spent_round AS r WHERE r.task = spent.task AND r.round = spent.round)
