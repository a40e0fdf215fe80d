-- name: seen-time
SELECT seen FROM clock

-- name: save-time
INSERT INTO clock (only, seen) VALUES (1, ?1) ON CONFLICT (only) DO UPDATE SET seen = ?1
