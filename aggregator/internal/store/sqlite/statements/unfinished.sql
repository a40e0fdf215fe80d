-- name: unfinished-jobs
SELECT count(*) FROM resource WHERE kind = 1 AND created < ?1 AND (state = 0 AND body IS NOT NULL OR state = 1 AND unfinished)
