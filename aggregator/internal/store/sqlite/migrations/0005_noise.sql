-- The noise of the last releases of tasks whose noise is correlated over releases: a file each, which later releases lean on.
-- Rows come with the release that they are of, and go when no release can lean on them any more.
CREATE TABLE noise (
  id    INTEGER PRIMARY KEY,
  task  INTEGER NOT NULL REFERENCES task (id),
  first INTEGER NOT NULL CHECK (first >= 0), -- of the release's interval
  last  INTEGER NOT NULL CHECK (last >= first),
  name  TEXT    NOT NULL UNIQUE,
  size  INTEGER NOT NULL CHECK (size > 0), -- bytes of the file
  sum   BLOB    NOT NULL CHECK (length(sum) = 32)
) STRICT;

CREATE INDEX noise_task ON noise (task, last);

CREATE TRIGGER noise_order BEFORE INSERT ON noise WHEN EXISTS (
  SELECT 1 FROM noise WHERE task = NEW.task AND last >= NEW.first)
BEGIN SELECT RAISE(ABORT, 'correlated noise is drawn in the order of time'); END;
CREATE TRIGGER noise_released BEFORE INSERT ON noise WHEN NOT EXISTS (
  SELECT 1 FROM release WHERE task = NEW.task AND first = NEW.first AND last = NEW.last)
BEGIN SELECT RAISE(ABORT, 'noise is kept with its release'); END;
CREATE TRIGGER noise_final BEFORE UPDATE ON noise
BEGIN SELECT RAISE(ABORT, 'noise is drawn once'); END;
