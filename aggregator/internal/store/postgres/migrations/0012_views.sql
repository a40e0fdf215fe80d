-- least: 4
-- Views: spans of whole rounds, in units of the task's time_precision, of each of which a
-- bucket is released once. A task without rows has none. No program of before knows a recipe
-- with views, nor serves its task.
CREATE TABLE task_view (
  task   bigint  NOT NULL REFERENCES task (id),
  number integer NOT NULL CHECK (number BETWEEN 0 AND 255), -- the narrowest is 0
  units  bigint  NOT NULL CHECK (units > 0),
  PRIMARY KEY (task, number),
  UNIQUE (task, units)
);
REVOKE ALL ON task_view FROM PUBLIC, CURRENT_USER;
GRANT SELECT, INSERT ON task_view TO :service;

-- Buckets before a time take no report and are not released: that of their views is over.
CREATE TABLE view_end (
  task   bigint PRIMARY KEY REFERENCES task (id),
  before bigint NOT NULL CHECK (before > 0)
);
REVOKE ALL ON view_end FROM PUBLIC, CURRENT_USER;
GRANT SELECT, INSERT, UPDATE (before) ON view_end TO :service;

-- How many of its reports no release had before it; NULL for all. The parts of a bucket stay
-- until it was released in each view, or their time is over.
ALTER TABLE release ADD COLUMN fresh bigint CHECK (fresh BETWEEN 0 AND count);
