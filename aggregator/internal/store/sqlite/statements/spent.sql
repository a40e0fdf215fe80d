-- name: spent-round
SELECT marks, sum, state FROM spent_round WHERE task = ?1 AND round = ?2

-- name: put-spent-round
INSERT INTO spent_round (task, round, marks, sum) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET marks = excluded.marks, sum = excluded.sum

-- name: spent-rounds
SELECT round FROM spent_round WHERE task = ?1 AND state < 2 ORDER BY round LIMIT ?2

-- name: runs-of-round
SELECT id, 0 FROM run WHERE task = ?1 AND round = ?2 LIMIT ?3

-- name: round-over
UPDATE spent_round SET state = ?3 WHERE task = ?1 AND round = ?2 AND state < ?3

-- name: put-round-over
INSERT INTO spent_round (task, round, marks, sum, state) VALUES (?1, ?2, 0, zeroblob(32), ?3) ON CONFLICT DO UPDATE SET state = excluded.state

-- name: spent-in-rounds
SELECT round, marks FROM spent_round WHERE task = ?1 AND round BETWEEN ?2 AND ?3 AND marks > 0 ORDER BY round

-- name: sweep-spent-rounds
DELETE FROM spent_round WHERE (task, round) IN (SELECT task, round FROM spent_round WHERE task = ?1 LIMIT ?2)

-- name: audit-spent
SELECT task, round, marks, sum, state FROM spent_round ORDER BY task, round
