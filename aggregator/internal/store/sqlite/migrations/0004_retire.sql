-- A retired task ended long ago: all that was kept of it goes, but for its row with the
-- counts, its rejections and the ledger. With its replay protection gone nothing may
-- enter it ever again, so it is never brought back.
ALTER TABLE task ADD COLUMN retired INTEGER; -- the moment; NULL while it is kept
ALTER TABLE task ADD COLUMN swept INTEGER NOT NULL DEFAULT 0 CHECK (swept = 0 OR (swept = 1 AND retired IS NOT NULL));

CREATE TRIGGER task_retired BEFORE UPDATE ON task WHEN OLD.retired IS NOT NULL AND (
  NEW.retired IS NOT OLD.retired OR NEW.aggregated <> OLD.aggregated OR NEW.collected <> OLD.collected OR NEW.swept < OLD.swept)
BEGIN SELECT RAISE(ABORT, 'a retired task is never brought back'); END;

DROP TRIGGER batch_kept;
CREATE TRIGGER batch_kept BEFORE DELETE ON batch WHEN (SELECT retired FROM task WHERE id = OLD.task) IS NULL
BEGIN SELECT RAISE(ABORT, 'a batch is never forgotten while its task is kept'); END;

CREATE TRIGGER batch_of_retired BEFORE INSERT ON batch WHEN (SELECT retired FROM task WHERE id = NEW.task) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the task is retired'); END;
CREATE TRIGGER segment_of_retired BEFORE INSERT ON segment WHEN (SELECT retired FROM task WHERE id = NEW.task) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the task is retired'); END;
CREATE TRIGGER run_of_retired BEFORE INSERT ON run WHEN (SELECT retired FROM task WHERE id = NEW.task) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the task is retired'); END;
CREATE TRIGGER resource_of_retired BEFORE INSERT ON resource WHEN (SELECT retired FROM task WHERE id = NEW.task) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the task is retired'); END;
CREATE TRIGGER release_of_retired BEFORE INSERT ON release WHEN (SELECT retired FROM task WHERE id = NEW.task) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the task is retired'); END;
