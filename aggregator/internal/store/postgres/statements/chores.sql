-- name: take-chore
INSERT INTO chore (name, holder, until) VALUES ($1, $2, now() + $3::bigint * interval '1 millisecond')
ON CONFLICT (name) DO UPDATE SET holder = $2, until = now() + $3::bigint * interval '1 millisecond'
WHERE chore.holder = $2 OR chore.until <= now() RETURNING place

-- name: save-chore
UPDATE chore SET place = $3 WHERE name = $1 AND holder = $2 AND until > now()
