-- name: journal
SELECT holder, beats, events, head FROM journal

-- The journal of a process that was not seen since, or of none.
-- name: take-journal
UPDATE journal SET holder = $1, beats = beats + 1 WHERE holder IS NOT DISTINCT FROM $2 AND beats = $3

-- name: beat-journal
UPDATE journal SET beats = beats + 1 WHERE holder = $1

-- name: give-up-journal
UPDATE journal SET holder = NULL WHERE holder = $1

-- Whoever takes the journal waits until this transaction is over.
-- name: hold-journal
SELECT events FROM journal WHERE holder = $1 FOR SHARE

-- name: grow-journal
UPDATE journal SET events = events + 1, head = $4 WHERE holder = $1 AND events = $2 AND head = $3

-- name: put-event
INSERT INTO event (number, content) VALUES ($1, $2)

-- name: events
SELECT number, content FROM event ORDER BY number

-- name: put-file
INSERT INTO file (name, content) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET content = excluded.content

-- name: file
SELECT content FROM file WHERE name = $1

-- name: files
SELECT name FROM file

-- name: drop-file
DELETE FROM file WHERE name = $1
