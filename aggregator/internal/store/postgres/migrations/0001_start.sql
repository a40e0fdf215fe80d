-- least: 1
-- What the replicas of one aggregator keep together. Times are in units of the task's
-- time_precision; intervals are stored by their first and last unit, both included, clamped
-- to 63 bits (a report's time always fits). Moments are Unix nanoseconds.
--
-- Rules stand here as CHECK, UNIQUE, EXCLUDE, foreign keys and rights, and nothing leans on
-- a trigger or an extension, which compatible services lack. Exclusion is over ranges of
-- numbers in which the task, and the view, come before the unit.
--
-- The role that runs this owns the tables. Each REVOKE takes a right from the owner too,
-- so that it holds, against mistakes, where the owner and :service are one role.

-- Whose store this is.
CREATE TABLE identity (
  one          boolean  PRIMARY KEY DEFAULT true CHECK (one),
  resource_key bytea    NOT NULL CHECK (length(resource_key) = 32), -- HMAC key of resource ids
  store_id     bytea    NOT NULL CHECK (length(store_id) = 16),
  role         smallint NOT NULL CHECK (role IN (2, 3)), -- dap.Role
  party        text     NOT NULL, -- the URL under which the aggregator is reached
  epoch        bigint   NOT NULL DEFAULT 0 CHECK (epoch BETWEEN 0 AND 4294967295), -- how often it was restored
  keys         boolean  NOT NULL DEFAULT false -- HPKE keys were made, ever
);
REVOKE ALL ON identity FROM PUBLIC, CURRENT_USER;
GRANT SELECT, INSERT, UPDATE (epoch, keys) ON identity TO :service;

-- The last release of the store. Its row is the turn to enter the ledger.
CREATE TABLE head (
  one   boolean PRIMARY KEY DEFAULT true CHECK (one),
  seq   bigint  NOT NULL DEFAULT 0 CHECK (seq >= 0),
  total bytea   NOT NULL DEFAULT decode(repeat('00', 32), 'hex') CHECK (length(total) = 32)
);
INSERT INTO head DEFAULT VALUES;
GRANT SELECT, UPDATE (seq, total) ON head TO :service;

-- A task. Commits hold its row FOR KEY SHARE, and what changes the state of batches FOR
-- UPDATE; so no count is kept here.
CREATE TABLE task (
  id             bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task_id        bytea    NOT NULL UNIQUE CHECK (length(task_id) = 32),
  config         bytea    NOT NULL,
  mode           smallint NOT NULL CHECK (mode IN (1, 2)), -- dap.BatchMode
  time_precision bigint   NOT NULL CHECK (time_precision > 0),
  min_batch      bigint   NOT NULL CHECK (min_batch >= 0),
  closed_in      bigint   NOT NULL DEFAULT 0 CHECK (closed_in BETWEEN 0 AND 4294967295), -- the restore epoch that closed it; 0: open
  retired        bigint, -- the moment; NULL while it is kept
  swept          boolean  NOT NULL DEFAULT false CHECK (NOT swept OR retired IS NOT NULL),
  UNIQUE (id, min_batch)
);
REVOKE DELETE, TRUNCATE ON task FROM PUBLIC, CURRENT_USER;
GRANT SELECT, INSERT, UPDATE (closed_in, retired, swept) ON task TO :service;

-- The number of the last change of registration. Its row is the turn to change that table.
CREATE TABLE registry (
  one     boolean PRIMARY KEY DEFAULT true CHECK (one),
  changes bigint  NOT NULL DEFAULT 0 CHECK (changes >= 0)
);
INSERT INTO registry DEFAULT VALUES;
GRANT SELECT, UPDATE (changes) ON registry TO :service;

-- How each task came, what it was made of, and how it was closed. No secret is here: terms
-- name files of them. A row is never forgotten, and what it says of how the task came does
-- not change.
CREATE TABLE registration (
  task       bigint   PRIMARY KEY REFERENCES task (id),
  change     bigint   NOT NULL UNIQUE CHECK (change > 0), -- its last one
  form       smallint NOT NULL CHECK (form IN (1, 2)), -- aggregator.Form
  made       bytea, -- NULL once the task is retired and swept; so are the terms
  sum        bytea    NOT NULL CHECK (length(sum) = 32), -- SHA-256 of made
  terms      bytea,
  first      bytea    NOT NULL CHECK (length(first) = 32), -- SHA-256 of the terms that it came with
  tenant     text     NOT NULL,
  source     smallint NOT NULL CHECK (source IN (1, 2, 3)), -- aggregator.Source
  added_by   text     NOT NULL CHECK (added_by <> ''),
  added      bigint   NOT NULL,
  begins     bigint, -- in seconds; NULL: no window
  ends       bigint   CHECK (ends > 0), -- in seconds; NULL: never
  kem        integer  NOT NULL CHECK (kem BETWEEN 0 AND 65535), -- that devices seal to; 0: any
  signed     boolean  NOT NULL, -- its recipe names signing keys
  closed     bigint, -- NULL while it is live
  closed_by  text     CHECK (closed_by <> ''),
  closed_why text     CHECK (closed_why <> ''),
  CHECK ((made IS NULL) = (terms IS NULL)),
  CHECK ((closed IS NULL) = (closed_by IS NULL) AND (closed IS NULL) = (closed_why IS NULL))
);
-- What a peer brought in band is counted at each task that it brings.
CREATE INDEX brought_live ON registration (added_by, ends) WHERE source = 3 AND closed IS NULL;
CREATE INDEX brought_added ON registration (added_by, added) WHERE source = 3;
REVOKE DELETE, TRUNCATE ON registration FROM PUBLIC, CURRENT_USER;
GRANT SELECT, INSERT, UPDATE (change, made, terms, closed, closed_by, closed_why) ON registration TO :service;

-- What is counted of a task, appended by each transaction that counts and added up where
-- it is read; many rows become one by the way. kind 0: acknowledged, 1: aggregated, 2:
-- refused at upload, 3: rejected after the acknowledgement, both of a code of
-- dap.ReportError. What was collected the ledger says.
CREATE TABLE tally (
  id      bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task    bigint   NOT NULL REFERENCES task (id),
  kind    smallint NOT NULL CHECK (kind BETWEEN 0 AND 3),
  code    smallint NOT NULL CHECK (code BETWEEN 0 AND 511),
  reports bigint   NOT NULL CHECK (reports > 0),
  CHECK ((kind >= 2) = (code > 0))
);
CREATE INDEX tally_task ON tally (task, kind, code);
GRANT SELECT, INSERT, DELETE ON tally TO :service;

-- A batch that has reports or was assigned some: a bucket of time, or a leader-selected
-- batch. Its numbers are those of its parts until it closes, which is when they are noted
-- here and the parts go.
CREATE TABLE batch (
  id         bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task       bigint  NOT NULL REFERENCES task (id),
  bucket     bigint  CHECK (bucket >= 0),
  batch_id   bytea   CHECK (length(batch_id) = 32),
  closed     boolean NOT NULL DEFAULT false,
  verified   bigint  CHECK (verified >= 0),
  first_time bigint,
  last_time  bigint,
  checksum   bytea   CHECK (length(checksum) = 32),
  UNIQUE (task, bucket),
  UNIQUE (task, batch_id),
  CHECK ((bucket IS NULL) <> (batch_id IS NULL)),
  CHECK (closed = (verified IS NOT NULL) AND closed = (checksum IS NOT NULL)),
  CHECK ((coalesce(verified, 0) = 0) = (first_time IS NULL) AND (first_time IS NULL) = (last_time IS NULL)),
  CHECK (first_time <= last_time)
);
CREATE INDEX batch_open ON batch (task, id) WHERE NOT closed;
GRANT SELECT, INSERT, UPDATE (closed, verified, first_time, last_time, checksum), DELETE ON batch TO :service;

-- What one commit has added to a batch. Parts are added up at the freeze; the compaction
-- of many makes one of them.
CREATE TABLE part (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  batch      bigint NOT NULL REFERENCES batch (id),
  reports    bigint NOT NULL CHECK (reports > 0),
  first_time bigint NOT NULL,
  last_time  bigint NOT NULL CHECK (last_time >= first_time),
  checksum   bytea  NOT NULL CHECK (length(checksum) = 32),
  data_key   bigint NOT NULL, -- that share is sealed under; see data_key
  share      bytea  NOT NULL,
  sum        bytea  NOT NULL CHECK (length(sum) = 32) -- hash of the row
);
ALTER TABLE part ALTER COLUMN share SET STORAGE EXTERNAL; -- shares look random
CREATE INDEX part_batch ON part (batch);
CREATE INDEX part_data_key ON part (data_key);
GRANT SELECT, INSERT, DELETE ON part TO :service;

-- The replay protection: sorted runs of the 16-byte ids that are aggregated in a task. A
-- commit appends a run; merges make few of many. What a replica keeps in memory of a run is
-- its pages and its filter, two bytes for each id, by which it reads a page of the ids where
-- one may be that it looks for. Measured in commits of 1,000 ids, with a checkpoint every
-- 200,000: a row for each id with its unique index takes 104 bytes, and 185 bytes of log up
-- to 200,000 ids, 442 from a million on, and ever more, for ids are random and a page is
-- logged whole after each checkpoint. An id in a run takes 18 bytes, and 19 of log, then and
-- at each merge.
CREATE TABLE run (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task   bigint NOT NULL REFERENCES task (id),
  count  bigint NOT NULL CHECK (count > 0),
  ids    bytea  NOT NULL CHECK (length(ids) = 16 * count),
  pages  bytea  NOT NULL CHECK (length(pages) = 48 * ((count + 255) / 256)), -- for each 256 ids the first one, and their SHA-256
  filter bytea  NOT NULL, -- a Bloom filter of the ids, under the store's key
  digest bytea  NOT NULL CHECK (length(digest) = 32), -- of the set of ids, under the store's key
  sum    bytea  NOT NULL CHECK (length(sum) = 32) -- hash of the row
);
ALTER TABLE run ALTER COLUMN ids SET STORAGE EXTERNAL; -- a part of them is read alone
ALTER TABLE run ALTER COLUMN pages SET STORAGE EXTERNAL;
ALTER TABLE run ALTER COLUMN filter SET STORAGE EXTERNAL;
CREATE INDEX run_task ON run (task, id);
GRANT SELECT, INSERT, DELETE ON run TO :service;

-- The turn to look at a task's runs and flights. It is held without a write to a disk.
CREATE TABLE replay (
  task bigint PRIMARY KEY REFERENCES task (id)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON replay TO :service;

-- The ids of commits under way: neither aggregated nor free. A commit enters its ids under
-- the turn, once it has looked for them in the runs and the flights, and takes its flight
-- back in the transaction that appends its run; one whose flight is gone begins again. So
-- of two commits with an id in common the second waits for what becomes of the first. A
-- crash of the server, which ends all commits, may empty this table: it costs no log.
CREATE UNLOGGED TABLE flight (
  token   bytea  PRIMARY KEY CHECK (length(token) = 16),
  task    bigint NOT NULL,
  ids     bytea  NOT NULL CHECK (length(ids) % 16 = 0),
  expires timestamptz NOT NULL -- by the server's clock
);
ALTER TABLE flight ALTER COLUMN ids SET STORAGE EXTERNAL;
CREATE INDEX flight_task ON flight (task);
GRANT SELECT, INSERT, DELETE ON flight TO :service;

-- Aggregation jobs of the leader, under way (state 0) or set aside (state 1) with the number
-- of their reports. One that is finished has no row. Its number names the helper's job, and
-- never comes back.
CREATE TABLE job (
  id            bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task          bigint   NOT NULL REFERENCES task (id),
  bucket        bigint   NOT NULL CHECK (bucket >= 0),
  batch         bigint   REFERENCES batch (id), -- leader-selected: for good
  reports       bigint   NOT NULL CHECK (reports > 0), -- of its slices
  state         smallint NOT NULL DEFAULT 0 CHECK (state IN (0, 1)),
  lease_token   bytea    CHECK (length(lease_token) = 16),
  lease_expires bigint,
  attempts      bigint   NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  not_before    bigint   NOT NULL DEFAULT 0,
  why           text     NOT NULL DEFAULT '',
  sent_digest   bytea    CHECK (length(sent_digest) = 32),
  sent_accepted bytea,
  sent_location text     NOT NULL DEFAULT '',
  sent_step     integer  NOT NULL DEFAULT 0 CHECK (sent_step BETWEEN 0 AND 65535), -- of the last request
  parked        boolean  NOT NULL DEFAULT false, -- no worker claims it until an operator has decided
  UNIQUE (id, task, bucket),
  CHECK (NOT parked OR (state = 0 AND lease_token IS NULL)),
  CHECK ((lease_token IS NULL) = (lease_expires IS NULL)),
  CHECK ((sent_digest IS NULL) = (sent_accepted IS NULL)),
  CHECK (length(sent_accepted) = (reports + 7) / 8),
  CHECK (state = 0 OR lease_token IS NULL)
);
CREATE INDEX job_due ON job (id) WHERE state = 0 AND NOT parked;
CREATE INDEX job_task ON job (task, id);
CREATE INDEX job_batch ON job (batch) WHERE batch IS NOT NULL;
-- Jobs of the same reports are one at the helper: one alone goes past its first step.
CREATE UNIQUE INDEX job_location ON job (task, sent_location) WHERE state = 0 AND sent_step > 0;
GRANT SELECT, INSERT, UPDATE, DELETE ON job TO :service;

-- Objects of acknowledged reports: what one group commit acknowledged, of all tasks. One
-- goes when none of its slices is left.
CREATE TABLE object (
  id     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name   text        COLLATE "C" NOT NULL UNIQUE,
  slices bigint      NOT NULL CHECK (slices >= 0), -- that were named in it; those without a row have ended
  since  timestamptz NOT NULL DEFAULT now(),
  body   bytea -- of a small one; NULL where it lies in object storage
);
ALTER TABLE object ALTER COLUMN body SET STORAGE EXTERNAL; -- it is sealed, and read in parts
GRANT SELECT, INSERT, UPDATE (slices), DELETE ON object TO :service;

-- Reports of one task and bucket that wait, in one object. A job takes several, of several
-- objects, and has their reports in the order of these rows.
CREATE TABLE slice (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order of claims
  object     bigint NOT NULL REFERENCES object (id),
  pieces     bytea  NOT NULL CHECK (length(pieces) > 0), -- of the object: segment.AppendPieces
  size       bigint NOT NULL CHECK (size > 0), -- bytes of all pieces
  sum        bytea  NOT NULL CHECK (length(sum) = 32),
  task       bigint NOT NULL REFERENCES task (id),
  bucket     bigint NOT NULL CHECK (bucket >= 0),
  reports    bigint NOT NULL CHECK (reports > 0),
  duplicates bigint NOT NULL CHECK (duplicates >= 0),
  came       bigint NOT NULL DEFAULT 0 CHECK (came >= 0), -- when its first report was acknowledged, in seconds; 0: not known
  job        bigint,
  FOREIGN KEY (job, task, bucket) REFERENCES job (id, task, bucket)
);
CREATE INDEX slice_free ON slice (id) WHERE job IS NULL;
CREATE INDEX slice_bucket ON slice (task, bucket, id);
CREATE INDEX slice_job ON slice (job, id) WHERE job IS NOT NULL;
CREATE INDEX slice_object ON slice (object);
GRANT SELECT, INSERT, UPDATE (object, pieces, size, job), DELETE ON slice TO :service;

-- Objects that lost slices, noted by each transaction that took some away. Whether any are
-- left is seen by whoever buries: a count in the object's row would have the jobs of all
-- its tasks wait for one another.
CREATE TABLE ending (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  object bigint NOT NULL
);
GRANT SELECT, INSERT, UPDATE (object), DELETE ON ending TO :service;

-- VDAFs of several rounds: what the helper said to the requests before the last.
CREATE TABLE answer (
  job  bigint  NOT NULL REFERENCES job (id) ON DELETE CASCADE,
  step integer NOT NULL CHECK (step BETWEEN 0 AND 65535),
  body bytea   NOT NULL,
  PRIMARY KEY (job, step)
);
GRANT SELECT, INSERT, DELETE ON answer TO :service;

-- Live DAP resources. A deleted one leaves a count in generation, so that its id never
-- comes back.
CREATE TABLE resource (
  id          bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task        bigint   NOT NULL REFERENCES task (id),
  kind        smallint NOT NULL CHECK (kind IN (1, 2, 3)), -- store.Kind
  resource_id text     NOT NULL,
  digest      bytea    NOT NULL CHECK (length(digest) = 32),
  body        bytea,
  selection   bytea    CHECK (length(selection) IN (16, 32)), -- an interval or a batch id
  state       smallint NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)), -- store.ResourceState
  step        integer  NOT NULL DEFAULT 0 CHECK (step BETWEEN 0 AND 65535),
  step_digest bytea    CHECK (length(step_digest) = 32),
  response    bytea,
  answer_sum  bytea    CHECK (length(answer_sum) = 32), -- SHA-256 of a response that was released
  problem     text,
  created     bigint   NOT NULL,
  unfinished  boolean  NOT NULL DEFAULT false, -- a step may follow, and the response still holds reports
  UNIQUE (task, kind, digest),
  UNIQUE (task, kind, resource_id),
  CHECK ((step = 0) = (step_digest IS NULL)),
  CHECK ((state = 1) = (response IS NOT NULL)),
  CHECK ((answer_sum IS NOT NULL) = (state = 1 AND kind IN (2, 3))),
  CHECK ((state = 2) = (problem IS NOT NULL))
);
CREATE INDEX resource_pending ON resource (kind, task, id) WHERE state = 0;
CREATE INDEX resource_unfinished ON resource (created) WHERE kind = 1 AND (state = 0 OR unfinished);
GRANT SELECT, INSERT, UPDATE (body, state, step, step_digest, response, answer_sum, problem, unfinished), DELETE ON resource TO :service;

CREATE TABLE generation (
  task     bigint   NOT NULL REFERENCES task (id),
  kind     smallint NOT NULL CHECK (kind IN (1, 2, 3)),
  digest   bytea    NOT NULL CHECK (length(digest) = 32),
  deleted  bigint   NOT NULL CHECK (deleted > 0),
  answered boolean  NOT NULL DEFAULT false, -- one of them had its answer
  PRIMARY KEY (task, kind, digest)
);
GRANT SELECT, INSERT, UPDATE (deleted, answered), DELETE ON generation TO :service;

-- What a pending collection keeps for itself: draining, and frozen once count is set.
CREATE TABLE hold (
  resource   bigint PRIMARY KEY REFERENCES resource (id) ON DELETE CASCADE,
  task       bigint NOT NULL REFERENCES task (id),
  first      bigint CHECK (first >= 0), -- of the interval
  last       bigint CHECK (last >= first),
  batch      bigint UNIQUE REFERENCES batch (id),
  selection  bytea  NOT NULL CHECK (length(selection) IN (16, 32)),
  count      bigint CHECK (count > 0),
  checksum   bytea  CHECK (length(checksum) = 32),
  span_first bigint,
  span_last  bigint CHECK (span_last >= span_first),
  fullest    bigint CHECK (fullest BETWEEN 0 AND count), -- the most reports of any one bucket; 0 if it is a batch
  CHECK ((first IS NULL) <> (batch IS NULL)),
  CHECK ((first IS NULL) = (last IS NULL)),
  CHECK ((count IS NULL) = (checksum IS NULL) AND (count IS NULL) = (span_first IS NULL)
    AND (count IS NULL) = (span_last IS NULL) AND (count IS NULL) = (fullest IS NULL)),
  CONSTRAINT hold_disjoint EXCLUDE USING gist (
    numrange(task::numeric * 9223372036854775808 + first, task::numeric * 9223372036854775808 + last, '[]') WITH &&
  ) WHERE (first IS NOT NULL)
);
CREATE INDEX hold_task ON hold (task, first);
GRANT SELECT, INSERT, UPDATE (count, checksum, span_first, span_last, fullest), DELETE ON hold TO :service;

-- The ledger: one row for each aggregate share ever given out, which no role of the service
-- changes or deletes. Everything that a row covers is closed, buckets without reports
-- included; view 0 is DAP's, and a later view is a release of its own.
CREATE TABLE release (
  seq         bigint   PRIMARY KEY CHECK (seq > 0),
  task        bigint   NOT NULL REFERENCES task (id),
  view        integer  NOT NULL DEFAULT 0 CHECK (view BETWEEN 0 AND 65535),
  kind        smallint NOT NULL CHECK (kind IN (2, 3)),
  resource_id text     NOT NULL,
  first       bigint   CHECK (first >= 0),
  last        bigint   CHECK (last >= first),
  batch_id    bytea    CHECK (length(batch_id) = 32),
  count       bigint   NOT NULL CHECK (count > 0),
  minimum     bigint   NOT NULL, -- the task's
  checksum    bytea    NOT NULL CHECK (length(checksum) = 32),
  debit       text     NOT NULL,
  position    bigint   NOT NULL CHECK (position > 0), -- among the task's, from 1
  answer      bytea    NOT NULL CHECK (length(answer) = 32), -- its SHA-256, as it was given out
  chain       bytea    NOT NULL CHECK (length(chain) = 32), -- the task's releases up to this one: internal/releases
  total       bytea    NOT NULL CHECK (length(total) = 32), -- all releases up to this one
  UNIQUE (task, view, batch_id),
  UNIQUE (task, position),
  FOREIGN KEY (task, minimum) REFERENCES task (id, min_batch),
  CHECK ((first IS NULL) <> (batch_id IS NULL)),
  CHECK ((first IS NULL) = (last IS NULL)),
  CONSTRAINT release_minimum CHECK (count >= minimum),
  CONSTRAINT release_disjoint EXCLUDE USING gist (
    numrange((task::numeric * 65536 + view) * 9223372036854775808 + first, (task::numeric * 65536 + view) * 9223372036854775808 + last, '[]') WITH &&
  ) WHERE (first IS NOT NULL)
);
CREATE INDEX release_interval ON release (task, first) WHERE first IS NOT NULL;
REVOKE ALL ON release FROM PUBLIC, CURRENT_USER;
GRANT SELECT, INSERT ON release TO :service;

-- The ledger, continued: each time that a share which was released was sealed again.
CREATE TABLE reseal (
  seq         bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task        bigint   NOT NULL REFERENCES task (id),
  kind        smallint NOT NULL CHECK (kind IN (2, 3)),
  resource_id text     NOT NULL,
  whose       smallint NOT NULL CHECK (whose IN (0, 1)), -- store.Whose
  former      bytea    NOT NULL CHECK (length(former) = 32),
  latter      bytea    NOT NULL CHECK (length(latter) = 32),
  at          bigint   NOT NULL
);
CREATE INDEX reseal_task ON reseal (task);
REVOKE ALL ON reseal FROM PUBLIC, CURRENT_USER;
GRANT SELECT, INSERT ON reseal TO :service;

-- The noise of the last releases of tasks whose noise is correlated over releases, in
-- parts, each of them sealed under a data key.
CREATE TABLE noise (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task     bigint NOT NULL REFERENCES task (id),
  first    bigint NOT NULL CHECK (first >= 0), -- of the release's interval
  last     bigint NOT NULL CHECK (last >= first),
  entries  bigint NOT NULL CHECK (entries > 0),
  data_key bigint NOT NULL,
  CONSTRAINT noise_disjoint EXCLUDE USING gist (
    numrange(task::numeric * 9223372036854775808 + first, task::numeric * 9223372036854775808 + last, '[]') WITH &&)
);
CREATE INDEX noise_task ON noise (task, last);
CREATE INDEX noise_data_key ON noise (data_key);
GRANT SELECT, INSERT, DELETE ON noise TO :service;

CREATE TABLE noise_part (
  noise bigint NOT NULL REFERENCES noise (id) ON DELETE CASCADE,
  part  bigint NOT NULL CHECK (part >= 0),
  box   bytea  NOT NULL,
  PRIMARY KEY (noise, part)
);
ALTER TABLE noise_part ALTER COLUMN box SET STORAGE EXTERNAL; -- it is sealed
GRANT SELECT, INSERT, DELETE ON noise_part TO :service;

-- The data keys that this store has used, without their secrets, which lie elsewhere: a
-- key that is missing there is lost, and one that ended never comes back. Times are Unix
-- seconds.
CREATE TABLE data_key_set (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  id  bytea   NOT NULL CHECK (length(id) = 16)
);
GRANT SELECT, INSERT ON data_key_set TO :service;

CREATE TABLE data_key (
  serial bigint  PRIMARY KEY CHECK (serial > 0),
  first  bigint  NOT NULL,
  until  bigint  NOT NULL CHECK (until > first),
  ended  boolean NOT NULL DEFAULT false,
  CONSTRAINT data_key_disjoint EXCLUDE USING gist (int8range(first, until) WITH &&)
);
GRANT SELECT, INSERT, UPDATE (ended) ON data_key TO :service;

-- The secrets of the aggregator, for each purpose a vault (package vault): 1 HPKE keys, 2
-- data keys. A vault's state says without secrets which of them live; the replica that makes
-- and ends them has it until a moment. Purpose 3 has a state alone: which manifests were
-- signed. Moments are microseconds by the server's clock.
CREATE TABLE vault (
  purpose smallint PRIMARY KEY CHECK (purpose IN (1, 2, 3)),
  version bigint   NOT NULL DEFAULT 0 CHECK (version >= 0), -- of state
  state   bytea    NOT NULL DEFAULT '' CHECK (length(state) <= 1048576),
  maker   text     NOT NULL DEFAULT '',
  until   bigint   NOT NULL DEFAULT 0
);
INSERT INTO vault (purpose) VALUES (1), (2), (3);
GRANT SELECT, UPDATE (version, state, maker, until) ON vault TO :service;

-- The newest version of each, so that a vault which was put back by itself is found out.
CREATE TABLE vault_mark (
  purpose smallint PRIMARY KEY REFERENCES vault (purpose),
  version bigint   NOT NULL DEFAULT 0
);
INSERT INTO vault_mark (purpose) VALUES (1), (2), (3);
GRANT SELECT, UPDATE (version) ON vault_mark TO :service;

-- A secret, wrapped by a key that is never here, and bound to the store, the purpose and the
-- name (package wrap).
CREATE TABLE secret (
  purpose  smallint NOT NULL REFERENCES vault (purpose),
  name     text     NOT NULL CHECK (name ~ '^[0-9a-z.-]{1,128}$'),
  wrapping text     NOT NULL CHECK (length(wrapping) BETWEEN 1 AND 256), -- the key that wraps it
  box      bytea    NOT NULL CHECK (length(box) BETWEEN 1 AND 8192),
  made     bigint   NOT NULL,
  PRIMARY KEY (purpose, name)
);
ALTER TABLE secret ALTER COLUMN box SET STORAGE EXTERNAL;
GRANT SELECT, INSERT, UPDATE (wrapping, box), DELETE ON secret TO :service;

-- Wrapping keys that have ended: no secret is wrapped by one, nor ever will be. Who ends one
-- holds the rows of vault, which whoever writes a secret holds too, so that none comes
-- behind the look.
CREATE TABLE wrapping_end (
  wrapping text   PRIMARY KEY CHECK (length(wrapping) BETWEEN 1 AND 256),
  at       bigint NOT NULL
);
GRANT SELECT, INSERT ON wrapping_end TO :service;

-- Replicas that live, by what they said last: which version they have taken over, proofs of
-- the secrets that they hold, and the names, with a comma between, of those that are in use.
CREATE TABLE replica (
  purpose smallint NOT NULL REFERENCES vault (purpose),
  name    text     NOT NULL CHECK (name ~ '^[0-9a-f]{32}$'),
  expires bigint   NOT NULL,
  seen    bigint   NOT NULL,
  proofs  bytea    NOT NULL CHECK (length(proofs) % 32 = 0 AND length(proofs) <= 131072),
  busy    text     NOT NULL CHECK (length(busy) <= 131072),
  PRIMARY KEY (purpose, name)
);
GRANT SELECT, INSERT, UPDATE (expires, seen, proofs, busy), DELETE ON replica TO :service;

-- The noised share of each release, under a data key, for as long as its resource is there:
-- it can be sealed again.
CREATE TABLE kept (
  resource  bigint PRIMARY KEY REFERENCES resource (id) ON DELETE CASCADE,
  data_key  bigint NOT NULL REFERENCES data_key (serial),
  sealed_to bytea  NOT NULL CHECK (length(sealed_to) = 32), -- SHA-256 of the collector's HPKE configuration
  asked     bytea  NOT NULL,
  peer      text   NOT NULL,
  box       bytea  NOT NULL
);
CREATE INDEX kept_data_key ON kept (data_key);
GRANT SELECT, INSERT, UPDATE (sealed_to), DELETE ON kept TO :service;

-- How the peer answers the jobs of a task, since a person last let the task go on, and
-- whether the task is held.
CREATE TABLE conduct (
  task    bigint  PRIMARY KEY REFERENCES task (id),
  heard   boolean NOT NULL DEFAULT false, -- a job was answered report by report
  turned  bigint  NOT NULL DEFAULT 0 CHECK (turned >= 0), -- jobs that were refused as a whole, in a row
  asked   bigint  NOT NULL DEFAULT 0, -- reports that got a verdict, in the window that runs
  refused bigint  NOT NULL DEFAULT 0 CHECK (refused BETWEEN 0 AND asked), -- of these, for the peer's own reasons
  since   bigint, -- held since; NULL where it is not
  person  boolean NOT NULL DEFAULT false, -- a person holds it
  why     text    NOT NULL DEFAULT '',
  CHECK ((since IS NULL) = (why = '')),
  CHECK (NOT person OR since IS NOT NULL)
);
CREATE INDEX conduct_held ON conduct (task) WHERE since IS NOT NULL;
GRANT SELECT, INSERT, UPDATE (heard, turned, asked, refused, since, person, why), DELETE ON conduct TO :service;

-- Objects of object storage that lost their last row, until they are gone: each is deleted
-- when whoever read its row before must be done, by the server's clock.
CREATE TABLE tombstone (
  object text PRIMARY KEY,
  since  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX tombstone_since ON tombstone (since);
GRANT SELECT, INSERT, DELETE ON tombstone TO :service;

-- The largest time at which the store was seen in use; see package steady.
CREATE TABLE clock (
  one  boolean PRIMARY KEY DEFAULT true CHECK (one),
  seen bigint  NOT NULL
);
GRANT SELECT, INSERT, UPDATE (seen) ON clock TO :service;
