-- What credentials have shown, by round of a task: each mark belongs to one report, so that
-- a device counts once. Marks are keyed hashes, whose key the issuer destroys with its
-- epoch. They lie in runs of their round, each with its report; runs go when the key has
-- gone, and with the task.
ALTER TABLE run ADD COLUMN round INTEGER CHECK (round >= 0); -- NULL: of report ids

DROP INDEX run_task;
CREATE INDEX run_round ON run (task, round);

-- What the marks of a round should be: their number, and the digest of the set of them and
-- their reports, under the store's key. The row stays when the round is over, so that no
-- mark of it is new again.
CREATE TABLE spent_round (
  task  INTEGER NOT NULL REFERENCES task (id),
  round INTEGER NOT NULL CHECK (round >= 0),
  marks INTEGER NOT NULL CHECK (marks >= 0),
  sum   BLOB    NOT NULL CHECK (length(sum) = 32),
  state INTEGER NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)), -- taking marks; over; over, and its marks are erased
  PRIMARY KEY (task, round)
) STRICT, WITHOUT ROWID;

CREATE INDEX spent_round_kept ON spent_round (task, round) WHERE state < 2;

CREATE TRIGGER spent_round_of_retired BEFORE INSERT ON spent_round WHEN (SELECT retired FROM task WHERE id = NEW.task) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the task is retired'); END;

CREATE TRIGGER spent_round_grows BEFORE UPDATE ON spent_round WHEN NEW.state < OLD.state OR NEW.marks < OLD.marks OR NEW.marks > OLD.marks AND NEW.state <> 0
BEGIN SELECT RAISE(ABORT, 'a round takes no mark back, and none once it is over'); END;

CREATE TRIGGER run_of_round BEFORE INSERT ON run
WHEN NEW.round IS NOT NULL AND (SELECT state FROM spent_round WHERE task = NEW.task AND round = NEW.round) IS NOT 0
BEGIN SELECT RAISE(ABORT, 'the round is over, or has not begun'); END;
