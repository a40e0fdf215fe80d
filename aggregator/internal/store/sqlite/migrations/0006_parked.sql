-- A segment whose job ended with an answer that fits no request: it keeps its file, its
-- reports still wait, and no worker claims it until an operator has decided what becomes
-- of it.
ALTER TABLE segment ADD COLUMN parked INTEGER NOT NULL DEFAULT 0
  CHECK (parked = 0 OR (parked = 1 AND state = 0 AND lease_token IS NULL));

-- How the peer answers the jobs of a task, since a person last let the task go on, and
-- whether the task is held: then no worker claims its segments, until a person lets it go
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
