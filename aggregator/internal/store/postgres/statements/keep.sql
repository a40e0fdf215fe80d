-- name: keys-were-made
SELECT keys FROM identity

-- name: note-keys
UPDATE identity SET keys = true WHERE NOT keys

-- name: seen-time
SELECT seen FROM clock

-- name: save-time
INSERT INTO clock (seen) VALUES ($1) ON CONFLICT (one) DO UPDATE SET seen = excluded.seen
