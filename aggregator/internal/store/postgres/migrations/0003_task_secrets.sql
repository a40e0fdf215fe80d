-- least: 1
-- Secrets of tasks, and what is sealed under keys made from them; see roots.go. Programs of
-- the version before neither write nor read any: none is made before the migration after
-- this one.
ALTER TABLE vault DROP CONSTRAINT vault_purpose_check, ADD CONSTRAINT vault_purpose_check CHECK (purpose IN (1, 2, 3, 4));

-- A secret of each task, sealed under a root: a secret of purpose 4, which is followed by
-- another one every day. Then all are sealed anew, and the root of before goes. It goes in
-- the transaction that retires the task.
CREATE TABLE task_secret (
  task    bigint   PRIMARY KEY REFERENCES task (id),
  purpose smallint NOT NULL DEFAULT 4 CHECK (purpose = 4),
  root    text     NOT NULL CHECK (length(root) = 16),
  box     bytea    NOT NULL CHECK (length(box) = 60),
  FOREIGN KEY (purpose, root) REFERENCES secret (purpose, name)
);
CREATE INDEX task_secret_root ON task_secret (root);
GRANT SELECT, INSERT, UPDATE (root, box), DELETE ON task_secret TO :service;

-- own: under a key of the task; before there were any, under the data key alone, and ids in
-- the clear.
ALTER TABLE part ADD COLUMN own boolean NOT NULL DEFAULT false;
ALTER TABLE noise ADD COLUMN own boolean NOT NULL DEFAULT false;
ALTER TABLE kept ADD COLUMN own boolean NOT NULL DEFAULT false;
ALTER TABLE flight ADD COLUMN own boolean NOT NULL DEFAULT false;
-- Of a run whose ids are enciphered; what hides its digest, too, is made from it.
ALTER TABLE run ADD COLUMN veil bytea CHECK (length(veil) = 16);
