-- What one aggregator keeps. Times are in units of the task's time_precision; intervals
-- are stored by their first and last unit, both included, clamped to 63 bits (a report's
-- time always fits). Moments are Unix nanoseconds.

-- Whose store this is, and how far it has come; see aggregator/internal/record.
CREATE TABLE identity (
  only         INTEGER PRIMARY KEY CHECK (only = 1),
  resource_key BLOB    NOT NULL CHECK (length(resource_key) = 32), -- HMAC key of resource ids
  store_id     BLOB    NOT NULL CHECK (length(store_id) = 16),
  role         INTEGER NOT NULL CHECK (role IN (2, 3)), -- dap.Role
  party        TEXT    NOT NULL, -- the URL under which the aggregator is reached
  epoch        INTEGER NOT NULL DEFAULT 0 CHECK (epoch BETWEEN 0 AND 4294967295), -- how often it was restored
  age          INTEGER NOT NULL DEFAULT 0 CHECK (age >= 0), -- changes that were counted
  keys         INTEGER NOT NULL DEFAULT 0 CHECK (keys IN (0, 1)) -- HPKE keys were made, ever
) STRICT;

CREATE TRIGGER identity_final BEFORE UPDATE ON identity WHEN NEW.store_id <> OLD.store_id OR NEW.role <> OLD.role
  OR NEW.party <> OLD.party OR NEW.epoch < OLD.epoch OR NEW.age < OLD.age OR NEW.keys < OLD.keys
BEGIN SELECT RAISE(ABORT, 'a store stays who it is'); END;
CREATE TRIGGER identity_kept BEFORE DELETE ON identity
BEGIN SELECT RAISE(ABORT, 'a store stays who it is'); END;

CREATE TABLE task (
  id             INTEGER PRIMARY KEY,
  task_id        BLOB    NOT NULL UNIQUE CHECK (length(task_id) = 32),
  config         BLOB    NOT NULL,
  mode           INTEGER NOT NULL CHECK (mode IN (1, 2)), -- dap.BatchMode
  time_precision INTEGER NOT NULL CHECK (time_precision > 0),
  min_batch      INTEGER NOT NULL CHECK (min_batch >= 0),
  acknowledged   INTEGER NOT NULL DEFAULT 0 CHECK (acknowledged >= 0),
  aggregated     INTEGER NOT NULL DEFAULT 0 CHECK (aggregated >= 0),
  collected      INTEGER NOT NULL DEFAULT 0 CHECK (collected >= 0),
  closed_in      INTEGER NOT NULL DEFAULT 0 CHECK (closed_in BETWEEN 0 AND 4294967295), -- the restore epoch that closed it; 0: open
  CHECK (collected <= aggregated AND aggregated <= acknowledged)
) STRICT;

-- A task that a restore closed never opens.
CREATE TRIGGER task_closed BEFORE UPDATE ON task WHEN NEW.closed_in < OLD.closed_in
BEGIN SELECT RAISE(ABORT, 'a task that was closed stays closed'); END;

-- Reports that were turned away, by dap.ReportError: stage 0 at upload, stage 1 after the
-- acknowledgement.
CREATE TABLE rejection (
  task    INTEGER NOT NULL REFERENCES task (id),
  stage   INTEGER NOT NULL CHECK (stage IN (0, 1)),
  code    INTEGER NOT NULL CHECK (code BETWEEN 1 AND 511),
  reports INTEGER NOT NULL CHECK (reports > 0),
  PRIMARY KEY (task, stage, code)
) STRICT, WITHOUT ROWID;

-- A batch that has reports or was assigned some: a bucket of time, or a leader-selected batch.
CREATE TABLE batch (
  id         INTEGER PRIMARY KEY,
  task       INTEGER NOT NULL REFERENCES task (id),
  bucket     INTEGER CHECK (bucket >= 0),
  batch_id   BLOB    CHECK (length(batch_id) = 32),
  closed     INTEGER NOT NULL DEFAULT 0 CHECK (closed IN (0, 1)),
  verified   INTEGER NOT NULL DEFAULT 0 CHECK (verified >= 0),
  first_time INTEGER,
  last_time  INTEGER,
  checksum   BLOB    NOT NULL DEFAULT (zeroblob(32)) CHECK (length(checksum) = 32),
  share      BLOB, -- the aggregate share; scrubbed when the batch closes
  sum        BLOB    CHECK (length(sum) = 32), -- hash of the row: task.sum
  UNIQUE (task, bucket),
  UNIQUE (task, batch_id),
  CHECK ((bucket IS NULL) <> (batch_id IS NULL)),
  CHECK ((verified = 0) = (first_time IS NULL) AND (verified = 0) = (last_time IS NULL)),
  CHECK (first_time <= last_time),
  CHECK (closed = 0 OR share IS NULL),
  CHECK ((share IS NULL) = (sum IS NULL)),
  CHECK (closed = 1 OR (verified = 0) = (share IS NULL))
) STRICT;

CREATE INDEX batch_open ON batch (task, id) WHERE closed = 0;

-- A closed batch takes nothing and never opens.
CREATE TRIGGER batch_closed BEFORE UPDATE ON batch WHEN OLD.closed = 1
BEGIN SELECT RAISE(ABORT, 'a closed batch cannot change'); END;
CREATE TRIGGER batch_kept BEFORE DELETE ON batch
BEGIN SELECT RAISE(ABORT, 'a batch is never forgotten'); END;

-- Append logs that were sorted and whose file may still be there.
CREATE TABLE log (
  log_id BLOB PRIMARY KEY NOT NULL
) STRICT, WITHOUT ROWID;

-- Segments that wait (state 0) or were set aside (state 1). A finished segment has no row.
CREATE TABLE segment (
  id            INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of claims
  name          TEXT    NOT NULL UNIQUE,
  size          INTEGER NOT NULL CHECK (size > 0), -- bytes of the file
  sum           BLOB    NOT NULL CHECK (length(sum) = 32),
  duplicates    INTEGER NOT NULL CHECK (duplicates >= 0),
  task          INTEGER NOT NULL REFERENCES task (id),
  bucket        INTEGER NOT NULL CHECK (bucket >= 0),
  reports       INTEGER NOT NULL CHECK (reports > 0),
  batch         INTEGER REFERENCES batch (id), -- leader-selected: assigned at the first claim
  state         INTEGER NOT NULL DEFAULT 0 CHECK (state IN (0, 1)),
  lease_token   BLOB    CHECK (length(lease_token) = 16),
  lease_expires INTEGER,
  attempts      INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  not_before    INTEGER NOT NULL DEFAULT 0,
  why           TEXT    NOT NULL DEFAULT '',
  sent_digest   BLOB    CHECK (length(sent_digest) = 32),
  sent_accepted BLOB,
  sent_location TEXT    NOT NULL DEFAULT '',
  came          INTEGER NOT NULL DEFAULT 0 CHECK (came >= 0), -- when its first report was acknowledged, in seconds; 0: not known
  CHECK ((lease_token IS NULL) = (lease_expires IS NULL)),
  CHECK ((sent_digest IS NULL) = (sent_accepted IS NULL)),
  CHECK (state = 0 OR lease_token IS NULL)
) STRICT;

CREATE INDEX segment_waiting ON segment (id) WHERE state = 0;
CREATE INDEX segment_bucket ON segment (task, bucket);
CREATE INDEX segment_batch ON segment (batch) WHERE batch IS NOT NULL;

-- Sorted files of the report ids that are aggregated: the replay protection. Its scope is
-- the task. A file has ids of one range, both ends included: all ids, as a commit writes
-- it, or a part, once there are many; the parts do not overlap.
CREATE TABLE run (
  id   INTEGER PRIMARY KEY,
  task INTEGER NOT NULL REFERENCES task (id),
  low  BLOB    NOT NULL CHECK (length(low) = 16),
  high BLOB    NOT NULL CHECK (length(high) = 16),
  name TEXT    NOT NULL UNIQUE,
  ids  INTEGER NOT NULL CHECK (ids > 0),
  size INTEGER NOT NULL CHECK (size > 0), -- bytes of the file
  sum  BLOB    NOT NULL CHECK (length(sum) = 32), -- SHA-256 of the file
  digest BLOB  NOT NULL CHECK (length(digest) = 32), -- of the set of ids, under the store's key
  CHECK (low <= high)
) STRICT;

CREATE INDEX run_task ON run (task);

-- Live DAP resources. A deleted one leaves a count in generation, so that its id never
-- comes back.
CREATE TABLE resource (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  task        INTEGER NOT NULL REFERENCES task (id),
  kind        INTEGER NOT NULL CHECK (kind IN (1, 2, 3)), -- store.Kind
  resource_id TEXT    NOT NULL,
  digest      BLOB    NOT NULL CHECK (length(digest) = 32),
  body        BLOB,
  selection   BLOB    CHECK (length(selection) IN (16, 32)), -- an interval or a batch id
  state       INTEGER NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)), -- store.ResourceState
  step        INTEGER NOT NULL DEFAULT 0 CHECK (step BETWEEN 0 AND 65535),
  step_digest BLOB    CHECK (length(step_digest) = 32),
  response    BLOB,
  answer_sum  BLOB    CHECK (length(answer_sum) = 32), -- SHA-256 of a response that was released
  problem     TEXT,
  created     INTEGER NOT NULL,
  UNIQUE (task, kind, digest),
  UNIQUE (task, kind, resource_id),
  CHECK ((step = 0) = (step_digest IS NULL)),
  CHECK ((state = 1) = (response IS NOT NULL)),
  CHECK ((answer_sum IS NOT NULL) = (state = 1 AND kind IN (2, 3))),
  CHECK ((state = 2) = (problem IS NOT NULL))
) STRICT;

CREATE INDEX resource_pending ON resource (kind, id) WHERE state = 0;

CREATE TABLE generation (
  task    INTEGER NOT NULL REFERENCES task (id),
  kind    INTEGER NOT NULL CHECK (kind IN (1, 2, 3)),
  digest  BLOB    NOT NULL CHECK (length(digest) = 32),
  deleted INTEGER NOT NULL CHECK (deleted > 0),
  PRIMARY KEY (task, kind, digest)
) STRICT, WITHOUT ROWID;

-- What a pending collection keeps for itself: draining, and frozen once count is set.
CREATE TABLE hold (
  resource   INTEGER PRIMARY KEY REFERENCES resource (id) ON DELETE CASCADE,
  task       INTEGER NOT NULL REFERENCES task (id),
  first      INTEGER CHECK (first >= 0), -- of the interval
  last       INTEGER CHECK (last >= first),
  batch      INTEGER UNIQUE REFERENCES batch (id),
  selection  BLOB    NOT NULL CHECK (length(selection) IN (16, 32)),
  count      INTEGER CHECK (count > 0),
  checksum   BLOB    CHECK (length(checksum) = 32),
  span_first INTEGER,
  span_last  INTEGER CHECK (span_last >= span_first),
  fullest    INTEGER CHECK (fullest BETWEEN 0 AND count), -- the most reports of any one bucket; 0 if it is a batch
  CHECK ((first IS NULL) <> (batch IS NULL)),
  CHECK ((first IS NULL) = (last IS NULL)),
  CHECK ((count IS NULL) = (checksum IS NULL) AND (count IS NULL) = (span_first IS NULL)
    AND (count IS NULL) = (span_last IS NULL) AND (count IS NULL) = (fullest IS NULL))
) STRICT;

CREATE INDEX hold_task ON hold (task, first);

CREATE TRIGGER hold_disjoint BEFORE INSERT ON hold WHEN NEW.first IS NOT NULL AND EXISTS (
  SELECT 1 FROM hold WHERE task = NEW.task AND first <= NEW.last AND last >= NEW.first)
BEGIN SELECT RAISE(ABORT, 'two collections hold one bucket'); END;

-- The ledger: one row for each aggregate share ever given out. It is also what closes
-- batches: everything that a row covers is closed, buckets without reports included.
CREATE TABLE release (
  seq         INTEGER PRIMARY KEY,
  task        INTEGER NOT NULL REFERENCES task (id),
  kind        INTEGER NOT NULL CHECK (kind IN (2, 3)),
  resource_id TEXT    NOT NULL,
  first       INTEGER CHECK (first >= 0),
  last        INTEGER CHECK (last >= first),
  batch_id    BLOB    CHECK (length(batch_id) = 32),
  count       INTEGER NOT NULL CHECK (count > 0),
  checksum    BLOB    NOT NULL CHECK (length(checksum) = 32),
  debit       TEXT    NOT NULL,
  position    INTEGER NOT NULL CHECK (position > 0), -- among the task's, from 1
  answer      BLOB    NOT NULL CHECK (length(answer) = 32), -- its SHA-256, as it was given out
  chain       BLOB    NOT NULL CHECK (length(chain) = 32), -- the task's releases up to this one: internal/releases
  total       BLOB    NOT NULL CHECK (length(total) = 32), -- all releases up to this one
  UNIQUE (task, batch_id),
  UNIQUE (task, position),
  CHECK ((first IS NULL) <> (batch_id IS NULL)),
  CHECK ((first IS NULL) = (last IS NULL))
) STRICT;

CREATE INDEX release_interval ON release (task, first) WHERE first IS NOT NULL;

CREATE TRIGGER release_disjoint BEFORE INSERT ON release WHEN NEW.first IS NOT NULL AND EXISTS (
  SELECT 1 FROM release WHERE task = NEW.task AND first <= NEW.last AND last >= NEW.first)
BEGIN SELECT RAISE(ABORT, 'a bucket is collected once'); END;
CREATE TRIGGER release_minimum BEFORE INSERT ON release WHEN
  NEW.count < (SELECT min_batch FROM task WHERE id = NEW.task)
BEGIN SELECT RAISE(ABORT, 'a batch below its minimum is never released'); END;
CREATE TRIGGER release_order BEFORE INSERT ON release WHEN
  NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM release)
  OR NEW.position IS NOT (SELECT coalesce(max(position), 0) + 1 FROM release WHERE task = NEW.task)
BEGIN SELECT RAISE(ABORT, 'the ledger has no gaps'); END;
CREATE TRIGGER release_of_closed BEFORE INSERT ON release WHEN (SELECT closed_in FROM task WHERE id = NEW.task) <> 0
BEGIN SELECT RAISE(ABORT, 'the task was closed by a restore'); END;
CREATE TRIGGER release_final BEFORE UPDATE ON release
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER release_kept BEFORE DELETE ON release
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
