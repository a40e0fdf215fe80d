-- name: members-begun
SELECT 1 WHERE to_regclass('member') IS NOT NULL

-- name: put-member
INSERT INTO member (name, life, began, seen, beats, ended, said) VALUES ($1, $2, $3, $3, 1, $4, $5) RETURNING beats

-- name: renew-member
UPDATE member SET life = $2, seen = $3, beats = beats + 1, ended = $4, said = $5 WHERE name = $1 AND beats >= $6 RETURNING beats

-- name: drop-old-members
DELETE FROM member WHERE seen < $1

-- name: forget-members
DELETE FROM member

-- name: members
SELECT m.name, m.began, m.seen, m.ended, m.said, m.life, coalesce(r.proofs, '')
FROM member AS m LEFT JOIN replica AS r ON r.purpose = 1 AND r.name = m.life ORDER BY m.began, m.name
