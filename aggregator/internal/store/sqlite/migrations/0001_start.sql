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
  keys         INTEGER NOT NULL DEFAULT 0 CHECK (keys IN (0, 1)), -- HPKE keys were made, ever
  registry     INTEGER NOT NULL DEFAULT 0 CHECK (registry >= 0) -- changes of table registration
) STRICT;

CREATE TRIGGER identity_final BEFORE UPDATE ON identity WHEN NEW.store_id <> OLD.store_id OR NEW.role <> OLD.role
  OR NEW.party <> OLD.party OR NEW.epoch < OLD.epoch OR NEW.age < OLD.age OR NEW.keys < OLD.keys
  OR NEW.registry < OLD.registry
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
  retired        INTEGER, -- the moment; NULL while it is kept
  swept          INTEGER NOT NULL DEFAULT 0 CHECK (swept = 0 OR (swept = 1 AND retired IS NOT NULL)),
  CHECK (collected <= aggregated AND aggregated <= acknowledged)
) STRICT;

-- A task that a restore closed never opens.
CREATE TRIGGER task_closed BEFORE UPDATE ON task WHEN NEW.closed_in < OLD.closed_in
BEGIN SELECT RAISE(ABORT, 'a task that was closed stays closed'); END;

-- Tasks that came after the backup that was put back: what was released of them nobody
-- knows, so that none of them begins again.
CREATE TABLE forgotten (
  task_id BLOB PRIMARY KEY NOT NULL CHECK (length(task_id) = 32)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER forgotten_kept BEFORE DELETE ON forgotten
BEGIN SELECT RAISE(ABORT, 'a task that was forgotten never begins again'); END;
CREATE TRIGGER task_forgotten BEFORE INSERT ON task WHEN EXISTS (SELECT 1 FROM forgotten WHERE task_id = NEW.task_id)
BEGIN SELECT RAISE(ABORT, 'a task that was forgotten never begins again'); END;

-- How each task came, what it was made of, and how it was closed. No secret is here: terms
-- name files of them. Whoever has read all changes up to one reads those after it.
CREATE TABLE registration (
  task       INTEGER PRIMARY KEY REFERENCES task (id),
  change     INTEGER NOT NULL UNIQUE CHECK (change > 0), -- its last one, of identity.registry
  form       INTEGER NOT NULL CHECK (form IN (1, 2)), -- aggregator.Form
  made       BLOB, -- NULL once the task is retired and swept; so are the terms
  sum        BLOB    NOT NULL CHECK (length(sum) = 32), -- SHA-256 of made
  terms      BLOB,
  first      BLOB    NOT NULL CHECK (length(first) = 32), -- SHA-256 of the terms that it came with
  tenant     TEXT    NOT NULL,
  source     INTEGER NOT NULL CHECK (source IN (1, 2, 3)), -- aggregator.Source
  added_by   TEXT    NOT NULL CHECK (added_by <> ''),
  added      INTEGER NOT NULL,
  begins     INTEGER, -- in seconds; NULL: no window
  ends       INTEGER CHECK (ends > 0), -- in seconds; NULL: never
  kem        INTEGER NOT NULL CHECK (kem BETWEEN 0 AND 65535), -- that devices seal to; 0: any
  signed     INTEGER NOT NULL CHECK (signed IN (0, 1)), -- its recipe names signing keys
  closed     INTEGER, -- NULL while it is live
  closed_by  TEXT    CHECK (closed_by <> ''),
  closed_why TEXT    CHECK (closed_why <> ''),
  CHECK ((made IS NULL) = (terms IS NULL)),
  CHECK ((closed IS NULL) = (closed_by IS NULL) AND (closed IS NULL) = (closed_why IS NULL))
) STRICT;

-- What a peer brought in band is counted at each task that it brings.
CREATE INDEX brought_live ON registration (added_by, ends) WHERE source = 3 AND closed IS NULL;
CREATE INDEX brought_added ON registration (added_by, added) WHERE source = 3;

CREATE TRIGGER registration_final BEFORE UPDATE ON registration WHEN
  NEW.task <> OLD.task OR NEW.change < OLD.change OR NEW.form <> OLD.form OR NEW.sum <> OLD.sum OR NEW.tenant <> OLD.tenant
  OR NEW.source <> OLD.source OR NEW.added_by <> OLD.added_by OR NEW.added <> OLD.added OR NEW.begins IS NOT OLD.begins OR NEW.ends IS NOT OLD.ends
  OR NEW.first <> OLD.first OR NEW.kem <> OLD.kem OR NEW.signed <> OLD.signed
  OR OLD.closed IS NOT NULL AND (NEW.closed IS NOT OLD.closed OR NEW.closed_by IS NOT OLD.closed_by OR NEW.closed_why IS NOT OLD.closed_why)
  OR NEW.made IS NOT OLD.made AND (NEW.made IS NOT NULL OR (SELECT retired FROM task WHERE id = OLD.task) IS NULL)
  OR NEW.terms IS NOT OLD.terms AND NEW.terms IS NOT NULL AND (OLD.terms IS NULL OR OLD.closed IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'what a task was made of stays, and a closed one never opens'); END;
CREATE TRIGGER registration_kept BEFORE DELETE ON registration
BEGIN SELECT RAISE(ABORT, 'a task is never forgotten'); END;
CREATE TRIGGER registration_of_ended BEFORE INSERT ON registration WHEN
  (SELECT retired IS NOT NULL OR closed_in <> 0 FROM task WHERE id = NEW.task)
BEGIN SELECT RAISE(ABORT, 'the task has ended'); END;

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
CREATE TRIGGER batch_kept BEFORE DELETE ON batch WHEN (SELECT retired FROM task WHERE id = OLD.task) IS NULL
BEGIN SELECT RAISE(ABORT, 'a batch is never forgotten while its task is kept'); END;

-- Append logs that take uploads or wait to be sorted, whose files must be there, and those
-- that were sorted and whose files may still be there.
CREATE TABLE log (
  log_id BLOB    PRIMARY KEY NOT NULL,
  file   TEXT    NOT NULL,
  fate   INTEGER NOT NULL CHECK (fate IN (0, 1, 2)) -- segment.Fate
) STRICT, WITHOUT ROWID;

CREATE INDEX log_file ON log (file);

-- Files of acknowledged reports: logs that are sorted, and objects. One goes with its last
-- slice.
CREATE TABLE object (
  id     INTEGER PRIMARY KEY,
  name   TEXT    NOT NULL UNIQUE,
  slices INTEGER NOT NULL CHECK (slices > 0), -- that were named in it; those without a row have ended
  since  INTEGER NOT NULL -- when they were named, in seconds
) STRICT;

-- Aggregation jobs of the leader: under way (state 0), or set aside (state 1) with what
-- they had. One that is finished has no row.
CREATE TABLE job (
  id            INTEGER PRIMARY KEY AUTOINCREMENT, -- never of another job: the helper's is named by it
  task          INTEGER NOT NULL REFERENCES task (id),
  bucket        INTEGER NOT NULL CHECK (bucket >= 0),
  batch         INTEGER REFERENCES batch (id), -- leader-selected: for good
  reports       INTEGER NOT NULL CHECK (reports > 0), -- of its slices
  state         INTEGER NOT NULL DEFAULT 0 CHECK (state IN (0, 1)),
  lease_token   BLOB    CHECK (length(lease_token) = 16),
  lease_expires INTEGER,
  attempts      INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  not_before    INTEGER NOT NULL DEFAULT 0,
  why           TEXT    NOT NULL DEFAULT '',
  sent_digest   BLOB    CHECK (length(sent_digest) = 32),
  sent_accepted BLOB,
  sent_location TEXT    NOT NULL DEFAULT '',
  sent_step     INTEGER NOT NULL DEFAULT 0 CHECK (sent_step BETWEEN 0 AND 65535), -- of the last request
  -- It ended with an answer that fits no request, and no worker claims it until an operator
  -- has decided what becomes of it.
  parked        INTEGER NOT NULL DEFAULT 0 CHECK (parked = 0 OR (parked = 1 AND state = 0 AND lease_token IS NULL)),
  CHECK ((lease_token IS NULL) = (lease_expires IS NULL)),
  CHECK ((sent_digest IS NULL) = (sent_accepted IS NULL)),
  CHECK (sent_accepted IS NULL OR length(sent_accepted) = (reports + 7) / 8),
  CHECK (state = 0 OR lease_token IS NULL)
) STRICT;

CREATE INDEX job_due ON job (id) WHERE state = 0 AND parked = 0;
CREATE INDEX job_bucket ON job (task, bucket);
CREATE INDEX job_batch ON job (batch) WHERE batch IS NOT NULL;

-- Reports of one task and bucket that wait, in one file: pieces of it. A job takes several,
-- of several files, and has their reports in the order of their ids.
CREATE TABLE slice (
  id         INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of claims
  object     INTEGER NOT NULL REFERENCES object (id),
  start      INTEGER NOT NULL CHECK (start >= 0), -- byte of the file
  size       INTEGER NOT NULL CHECK (size > 0), -- bytes of all pieces
  sum        BLOB    NOT NULL CHECK (length(sum) = 32),
  task       INTEGER NOT NULL REFERENCES task (id),
  bucket     INTEGER NOT NULL CHECK (bucket >= 0),
  reports    INTEGER NOT NULL CHECK (reports > 0),
  duplicates INTEGER NOT NULL CHECK (duplicates >= 0),
  came       INTEGER NOT NULL DEFAULT 0 CHECK (came >= 0), -- when its first report was acknowledged, in seconds; 0: not known
  job        INTEGER REFERENCES job (id),
  pieces     BLOB    NOT NULL CHECK (length(pieces) > 0), -- segment.AppendPieces
  UNIQUE (object, start)
) STRICT;

CREATE INDEX slice_free ON slice (id, task, bucket) WHERE job IS NULL;
CREATE INDEX slice_bucket ON slice (task, bucket, id);
CREATE INDEX slice_job ON slice (job, id) WHERE job IS NOT NULL;

-- A job has slices of its own task and bucket, and those that were sent stay its own.
CREATE TRIGGER slice_of_job BEFORE UPDATE OF job ON slice WHEN NEW.job IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM job WHERE id = NEW.job AND task = NEW.task AND bucket = NEW.bucket AND state = 0 AND sent_digest IS NULL)
BEGIN SELECT RAISE(ABORT, 'a slice is of another task or bucket than the job, or comes too late'); END;
CREATE TRIGGER slice_sent BEFORE UPDATE OF job ON slice WHEN NEW.job IS NOT OLD.job AND EXISTS (
  SELECT 1 FROM job WHERE id = OLD.job AND sent_digest IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'the slices of a job that was sent are fixed'); END;
CREATE TRIGGER slice_final BEFORE UPDATE ON slice WHEN NEW.id <> OLD.id OR NEW.task <> OLD.task OR NEW.bucket <> OLD.bucket
  OR NEW.reports <> OLD.reports OR NEW.sum <> OLD.sum
BEGIN SELECT RAISE(ABORT, 'the reports of a slice do not change'); END;

-- VDAFs of several rounds: what the helper said to the requests before the last, from
-- which that one is computed again. It goes with the job.
CREATE TABLE answer (
  job  INTEGER NOT NULL REFERENCES job (id) ON DELETE CASCADE,
  step INTEGER NOT NULL CHECK (step BETWEEN 0 AND 65535),
  body BLOB    NOT NULL,
  PRIMARY KEY (job, step)
) STRICT;

-- Sorted files of the report ids that are aggregated: the replay protection. Its scope is
-- the task. A file has ids of one range, both ends included: all ids, as a commit writes
-- it, or a part, once there are many; the parts do not overlap.
CREATE TABLE run (
  id   INTEGER PRIMARY KEY AUTOINCREMENT, -- the newest of a task tells whether one knows them all
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
  -- Whether what answers an aggregation job still holds its requests, and with them the
  -- clients' sealed reports: a step may follow.
  unfinished  INTEGER NOT NULL DEFAULT 0 CHECK (unfinished IN (0, 1)),
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
  -- Whether one of the deleted resources had its answer: an aggregation job of the same
  -- bytes is then a late duplicate, and all of its reports are replays, whatever was said
  -- of them the first time.
  answered INTEGER NOT NULL DEFAULT 0 CHECK (answered IN (0, 1)),
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

-- A retired task ended long ago: all that was kept of it goes, but for its row with the
-- counts, its rejections and the ledger. With its replay protection gone nothing may
-- enter it ever again, so it is never brought back.
CREATE TRIGGER task_retired BEFORE UPDATE ON task WHEN OLD.retired IS NOT NULL AND (
  NEW.retired IS NOT OLD.retired OR NEW.aggregated <> OLD.aggregated OR NEW.collected <> OLD.collected OR NEW.swept < OLD.swept)
BEGIN SELECT RAISE(ABORT, 'a retired task is never brought back'); END;
CREATE TRIGGER batch_of_retired BEFORE INSERT ON batch WHEN (SELECT retired FROM task WHERE id = NEW.task) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the task is retired'); END;
CREATE TRIGGER slice_of_retired BEFORE INSERT ON slice WHEN (SELECT retired FROM task WHERE id = NEW.task) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the task is retired'); END;
CREATE TRIGGER run_of_retired BEFORE INSERT ON run WHEN (SELECT retired FROM task WHERE id = NEW.task) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the task is retired'); END;
CREATE TRIGGER resource_of_retired BEFORE INSERT ON resource WHEN (SELECT retired FROM task WHERE id = NEW.task) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the task is retired'); END;
CREATE TRIGGER release_of_retired BEFORE INSERT ON release WHEN (SELECT retired FROM task WHERE id = NEW.task) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the task is retired'); END;

-- The noise of the last releases of tasks whose noise is correlated over releases: a file
-- each, which later releases lean on. Rows come with the release that they are of, and go
-- when no release can lean on them any more.
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

-- The data keys that this store has used, without their secrets, which lie elsewhere: a
-- key that is missing there is lost, and one that ended never comes back. Times are Unix
-- seconds.
CREATE TABLE data_key_set (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  id   BLOB NOT NULL CHECK (length(id) = 16)
) STRICT;

CREATE TABLE data_key (
  serial INTEGER PRIMARY KEY CHECK (serial > 0),
  first  INTEGER NOT NULL,
  until  INTEGER NOT NULL CHECK (until > first),
  ended  INTEGER NOT NULL DEFAULT 0 CHECK (ended IN (0, 1))
) STRICT;

CREATE TRIGGER data_key_final BEFORE UPDATE ON data_key WHEN
  NEW.serial <> OLD.serial OR NEW.first <> OLD.first OR NEW.until <> OLD.until OR NEW.ended < OLD.ended
BEGIN SELECT RAISE(ABORT, 'a data key is of one time, and ends once'); END;
CREATE TRIGGER data_key_kept BEFORE DELETE ON data_key
BEGIN SELECT RAISE(ABORT, 'a data key is never forgotten'); END;
CREATE TRIGGER data_key_apart BEFORE INSERT ON data_key WHEN EXISTS (
  SELECT 1 FROM data_key WHERE serial <> NEW.serial AND first < NEW.until AND until > NEW.first)
BEGIN SELECT RAISE(ABORT, 'two data keys are of one time'); END;

-- The noised share of each release, under a data key, for as long as its resource is
-- there: it can be sealed again.
CREATE TABLE kept (
  resource  INTEGER PRIMARY KEY REFERENCES resource (id) ON DELETE CASCADE,
  data_key  INTEGER NOT NULL REFERENCES data_key (serial),
  sealed_to BLOB    NOT NULL CHECK (length(sealed_to) = 32), -- SHA-256 of the collector's HPKE configuration
  asked     BLOB    NOT NULL,
  peer      TEXT    NOT NULL,
  box       BLOB    NOT NULL
) STRICT;

CREATE INDEX kept_data_key ON kept (data_key);

-- The ledger, continued: each time that a share which was released was sealed again.
CREATE TABLE reseal (
  seq         INTEGER PRIMARY KEY AUTOINCREMENT,
  task        INTEGER NOT NULL REFERENCES task (id),
  kind        INTEGER NOT NULL CHECK (kind IN (2, 3)),
  resource_id TEXT    NOT NULL,
  whose       INTEGER NOT NULL CHECK (whose IN (0, 1)), -- store.Whose
  former      BLOB    NOT NULL CHECK (length(former) = 32),
  latter      BLOB    NOT NULL CHECK (length(latter) = 32),
  at          INTEGER NOT NULL
) STRICT;

CREATE TRIGGER reseal_released BEFORE INSERT ON reseal WHEN NOT EXISTS (
  SELECT 1 FROM release WHERE task = NEW.task AND kind = NEW.kind AND resource_id = NEW.resource_id)
BEGIN SELECT RAISE(ABORT, 'only what was released is sealed again'); END;
CREATE TRIGGER reseal_final BEFORE UPDATE ON reseal
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER reseal_kept BEFORE DELETE ON reseal
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;

-- How the peer answers the jobs of a task, since a person last let the task go on, and
-- whether the task is held: then no worker claims its jobs, until a person lets it go
-- on again.
CREATE TABLE conduct (
  task    INTEGER PRIMARY KEY REFERENCES task (id),
  heard   INTEGER NOT NULL DEFAULT 0 CHECK (heard IN (0, 1)), -- a job was answered report by report
  turned  INTEGER NOT NULL DEFAULT 0 CHECK (turned >= 0), -- jobs that were refused as a whole, in a row
  asked   INTEGER NOT NULL DEFAULT 0, -- reports that got a verdict, in the window that runs
  refused INTEGER NOT NULL DEFAULT 0 CHECK (refused BETWEEN 0 AND asked), -- of these, for the peer's own reasons
  since   INTEGER, -- held since; NULL where it is not
  person  INTEGER NOT NULL DEFAULT 0 CHECK (person IN (0, 1)), -- a person holds it
  why     TEXT    NOT NULL DEFAULT '',
  CHECK ((since IS NULL) = (why = '')),
  CHECK (person = 0 OR since IS NOT NULL)
) STRICT;

-- Files that lost their last row, until their removal is durable. The triggers write the
-- tombstone in the transaction that makes a file needless, whichever that is, so that no
-- file is ever deleted because it is unknown.
CREATE TABLE tombstone (
  name TEXT PRIMARY KEY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER slice_gone AFTER DELETE ON slice WHEN NOT EXISTS (SELECT 1 FROM slice WHERE object = OLD.object)
BEGIN DELETE FROM object WHERE id = OLD.object; END;
CREATE TRIGGER slice_moved AFTER UPDATE OF object ON slice WHEN NOT EXISTS (SELECT 1 FROM slice WHERE object = OLD.object)
BEGIN DELETE FROM object WHERE id = OLD.object; END;
CREATE TRIGGER object_gone AFTER DELETE ON object
BEGIN INSERT OR IGNORE INTO tombstone (name) VALUES (OLD.name); END;
CREATE TRIGGER run_gone AFTER DELETE ON run
BEGIN INSERT OR IGNORE INTO tombstone (name) VALUES (OLD.name); END;
CREATE TRIGGER noise_gone AFTER DELETE ON noise
BEGIN INSERT OR IGNORE INTO tombstone (name) VALUES (OLD.name); END;

-- A log that went by its tombstone is forgotten with that.
CREATE TRIGGER log_gone AFTER DELETE ON tombstone
BEGIN DELETE FROM log WHERE file = OLD.name AND fate = 1; END;

-- The largest time at which the store was seen in use; see package steady.
CREATE TABLE clock (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  seen INTEGER NOT NULL
) STRICT;

-- Logs that lost acknowledged reports, while they are kept for the operator to see. The
-- reports count as acknowledged and dropped.
CREATE TABLE damage (
  log_id  BLOB    PRIMARY KEY NOT NULL,
  file    TEXT    NOT NULL,
  bytes   INTEGER NOT NULL CHECK (bytes > 0),
  records INTEGER NOT NULL CHECK (records >= 0), -- none where the file is gone
  reports INTEGER NOT NULL CHECK (reports >= 0),
  exact   INTEGER NOT NULL CHECK (exact IN (0, 1))
) STRICT, WITHOUT ROWID;
