-- least: 1
-- What the marks outside of the database are compared with; see marks.go.
ALTER TABLE identity
  ADD COLUMN marked boolean NOT NULL DEFAULT false, -- marks were begun
  ADD COLUMN base   bigint  NOT NULL DEFAULT 0 CHECK (base >= 0); -- the last release before the marks of this epoch
GRANT UPDATE (marked, base) ON identity TO :service;

-- How often the time was saved by a program that keeps marks, and the last time's random word.
ALTER TABLE clock
  ADD COLUMN age  bigint NOT NULL DEFAULT 0 CHECK (age >= 0),
  ADD COLUMN word bytea  CHECK (length(word) = 16),
  ADD CHECK ((age = 0) = (word IS NULL));
GRANT UPDATE (age, word) ON clock TO :service;

-- Tasks that released after the backup that was restored, and are not in it: they are never
-- taken again.
CREATE TABLE forgotten (
  task_id bytea PRIMARY KEY CHECK (length(task_id) = 32)
);
REVOKE DELETE, UPDATE, TRUNCATE ON forgotten FROM PUBLIC, CURRENT_USER;
GRANT SELECT, INSERT ON forgotten TO :service;
