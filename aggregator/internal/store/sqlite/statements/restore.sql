-- name: raise-epoch
UPDATE identity SET epoch = ?1

-- name: close-tasks
UPDATE task SET closed_in = ?1

-- name: close-rounds
UPDATE spent_round SET state = 2 WHERE state < 2
