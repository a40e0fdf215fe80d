-- Views: spans of whole rounds, in units of the task's time_precision, of each of which a
-- bucket is released once; see docs/released.md. A task without rows has none.
CREATE TABLE task_view (
  task   INTEGER NOT NULL REFERENCES task (id),
  number INTEGER NOT NULL CHECK (number BETWEEN 0 AND 255), -- the narrowest is 0
  units  INTEGER NOT NULL CHECK (units > 0),
  PRIMARY KEY (task, number),
  UNIQUE (task, units)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER task_view_final BEFORE UPDATE ON task_view
BEGIN SELECT RAISE(ABORT, 'the views of a task do not change'); END;
CREATE TRIGGER task_view_kept BEFORE DELETE ON task_view
BEGIN SELECT RAISE(ABORT, 'the views of a task do not change'); END;

-- Buckets before it take no report and are not released: the time of their views is over.
ALTER TABLE task ADD COLUMN over INTEGER NOT NULL DEFAULT 0 CHECK (over >= 0);

CREATE TRIGGER task_over BEFORE UPDATE ON task WHEN NEW.over < OLD.over
BEGIN SELECT RAISE(ABORT, 'a time that is over does not come again'); END;

ALTER TABLE release ADD COLUMN view INTEGER NOT NULL DEFAULT 0 CHECK (view BETWEEN 0 AND 255);
-- How many of its reports no release had before it; NULL for all.
ALTER TABLE release ADD COLUMN fresh INTEGER CHECK (fresh BETWEEN 0 AND count);

DROP TRIGGER release_disjoint;
CREATE TRIGGER release_disjoint BEFORE INSERT ON release WHEN NEW.first IS NOT NULL AND EXISTS (
  SELECT 1 FROM release WHERE task = NEW.task AND view = NEW.view AND first <= NEW.last AND last >= NEW.first)
BEGIN SELECT RAISE(ABORT, 'a bucket is collected once in each view'); END;
CREATE TRIGGER release_of_view BEFORE INSERT ON release WHEN CASE
  WHEN EXISTS (SELECT 1 FROM task_view WHERE task = NEW.task) THEN NOT EXISTS (SELECT 1 FROM task_view
    WHERE task = NEW.task AND number = NEW.view AND units = NEW.last - NEW.first + 1 AND NEW.first % units = 0)
  ELSE NEW.view <> 0 END
BEGIN SELECT RAISE(ABORT, 'what is released is a span of a view'); END;
CREATE TRIGGER release_over BEFORE INSERT ON release WHEN NEW.first < (SELECT over FROM task WHERE id = NEW.task)
BEGIN SELECT RAISE(ABORT, 'the time of the views is over'); END;

-- The sum of a bucket that was released in one view and not in all, under the data key of
-- its time, until it was or their time is over.
CREATE TABLE bucket_sum (
  batch    INTEGER PRIMARY KEY REFERENCES batch (id),
  data_key INTEGER NOT NULL REFERENCES data_key (serial),
  box      BLOB    NOT NULL
) STRICT;

CREATE INDEX bucket_sum_data_key ON bucket_sum (data_key);

CREATE TRIGGER bucket_sum_of_closed BEFORE INSERT ON bucket_sum WHEN NOT EXISTS (
  SELECT 1 FROM batch JOIN task_view ON task_view.task = batch.task WHERE batch.id = NEW.batch AND closed = 1 AND verified > 0)
BEGIN SELECT RAISE(ABORT, 'a sum is kept of a closed bucket, for its views'); END;
CREATE TRIGGER bucket_sum_final BEFORE UPDATE ON bucket_sum
BEGIN SELECT RAISE(ABORT, 'the sum of a closed bucket does not change'); END;
