-- Whether one of the deleted resources of that digest had its answer: an aggregation job
-- of the same bytes is then a late duplicate, and all of its reports are replays,
-- whatever was said of them the first time.
ALTER TABLE generation ADD COLUMN answered INTEGER NOT NULL DEFAULT 0 CHECK (answered IN (0, 1));
