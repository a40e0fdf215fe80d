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
