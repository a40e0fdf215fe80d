-- name: store-id
SELECT store_id FROM identity

-- name: vault-now
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- name: vault-state
SELECT v.state, v.version, m.version FROM vault AS v JOIN vault_mark AS m ON m.purpose = v.purpose WHERE v.purpose = $1

-- name: save-vault
UPDATE vault SET state = $3, version = version + 1 WHERE purpose = $1 AND version = $2

-- name: mark-vault
UPDATE vault_mark SET version = $2 WHERE purpose = $1 AND version < $2

-- name: keep-vault
SELECT 1 FROM vault WHERE purpose = $1 AND version = $2 FOR UPDATE

-- name: put-secret
INSERT INTO secret (purpose, name, wrapping, box, made)
SELECT $1::smallint, $2, $3, $4, $5 WHERE NOT EXISTS (SELECT 1 FROM wrapping_end WHERE wrapping = $3)

-- name: secret
SELECT wrapping, box FROM secret WHERE purpose = $1 AND name = $2

-- name: secrets
SELECT name FROM secret WHERE purpose = $1 ORDER BY name

-- name: drop-secrets
DELETE FROM secret WHERE purpose = $1 AND name <> ALL (string_to_array($2, ','))

-- name: secrets-to-rewrap
SELECT name FROM secret WHERE purpose = $1 AND wrapping <> $2 ORDER BY name

-- name: rewrap-secret
UPDATE secret SET wrapping = $3, box = $4 WHERE purpose = $1 AND name = $2 AND wrapping = $5
  AND NOT EXISTS (SELECT 1 FROM wrapping_end WHERE wrapping = $3)

-- name: hold-vault
SELECT 1 FROM vault WHERE purpose = $1 FOR KEY SHARE

-- name: hold-vaults-alone
SELECT purpose FROM vault ORDER BY purpose FOR UPDATE

-- name: secrets-of-wrapping
SELECT count(*) FROM secret WHERE wrapping = $1

-- name: wrappings
SELECT coalesce(s.wrapping, e.wrapping), coalesce(s.n, 0), e.wrapping IS NOT NULL
FROM (SELECT wrapping, count(*) AS n FROM secret GROUP BY wrapping) AS s FULL JOIN wrapping_end AS e ON e.wrapping = s.wrapping
ORDER BY 1

-- name: wrapping-ended
SELECT 1 FROM wrapping_end WHERE wrapping = $1

-- name: end-wrapping
INSERT INTO wrapping_end (wrapping, at) VALUES ($1, $2) ON CONFLICT (wrapping) DO NOTHING

-- name: lead-vault
UPDATE vault SET maker = $2, until = $4 WHERE purpose = $1 AND (maker = $2 OR until < $3)

-- name: resign-vault
UPDATE vault SET until = 0 WHERE purpose = $1 AND maker = $2

-- name: put-replica
INSERT INTO replica (purpose, name, expires, seen, proofs, busy) VALUES ($1, $2, $3, $4, $5, $6)

-- name: renew-replica
UPDATE replica SET expires = $3, seen = $4, proofs = $5, busy = $6 WHERE purpose = $1 AND name = $2

-- name: note-program
UPDATE replica SET program = $3 WHERE purpose = $1 AND name = $2 AND program IS DISTINCT FROM $3

-- Of those below a version: how many, and the oldest one's; 0 is that of one that says none.
-- name: older-programs
SELECT count(*), coalesce(min(coalesce(program, 0)), 0) FROM replica WHERE purpose = $1 AND (program IS NULL OR program < $2)

-- name: drop-replica
DELETE FROM replica WHERE purpose = $1 AND name = $2

-- A replica that was held dead has no row. It keeps its row from being taken away until the
-- transaction is over.
-- name: replica-lives
SELECT 1 FROM replica WHERE purpose = 1 AND name = $1 FOR KEY SHARE

-- name: drop-dead-replicas
DELETE FROM replica WHERE purpose = $1 AND expires < $2

-- name: peers
SELECT name, seen, proofs, busy FROM replica WHERE purpose = $1 AND name <> $2 AND expires >= $3 ORDER BY name
