-- Logs that lost acknowledged reports, while they are kept for the operator to see. The
-- reports count as acknowledged and dropped.
CREATE TABLE damage (
  log_id  BLOB    PRIMARY KEY NOT NULL,
  file    TEXT    NOT NULL,
  bytes   INTEGER NOT NULL CHECK (bytes > 0),
  records INTEGER NOT NULL CHECK (records > 0),
  reports INTEGER NOT NULL CHECK (reports >= 0),
  exact   INTEGER NOT NULL CHECK (exact IN (0, 1))
) STRICT, WITHOUT ROWID;
