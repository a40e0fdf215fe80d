-- name: put-tombstone
INSERT OR IGNORE INTO tombstone (name) VALUES (?1)

-- name: tombstones
SELECT name FROM tombstone WHERE name NOT IN (SELECT name FROM object)
  AND name NOT IN (SELECT name FROM run) AND name NOT IN (SELECT name FROM noise) LIMIT ?1

-- name: drop-tombstone
DELETE FROM tombstone WHERE name = ?1

-- name: audit-tombstones
SELECT name FROM tombstone WHERE name IN (SELECT name FROM object)
  OR name IN (SELECT name FROM run) OR name IN (SELECT name FROM noise)
