-- name: raise-epoch
UPDATE identity SET epoch = ?1

-- name: close-tasks
UPDATE task SET closed_in = ?1
