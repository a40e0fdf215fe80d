-- VDAFs of several rounds. sent_step is the step of the last request of a segment's
-- aggregation job; answer has what the helper said to those before it, from which the
-- last request is computed again. Both go with the segment's job.
ALTER TABLE segment ADD COLUMN sent_step INTEGER NOT NULL DEFAULT 0 CHECK (sent_step BETWEEN 0 AND 65535);

CREATE TABLE answer (
  segment INTEGER NOT NULL REFERENCES segment (id) ON DELETE CASCADE,
  step    INTEGER NOT NULL CHECK (step BETWEEN 0 AND 65535),
  body    BLOB    NOT NULL,
  PRIMARY KEY (segment, step)
) STRICT;

-- Whether the response of an aggregation job still holds its requests, and with them the
-- clients' sealed reports: a step may follow.
ALTER TABLE resource ADD COLUMN unfinished INTEGER NOT NULL DEFAULT 0 CHECK (unfinished IN (0, 1));
