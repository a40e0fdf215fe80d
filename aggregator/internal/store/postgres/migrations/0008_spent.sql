-- least: 4
-- What credentials have shown, by round of a task: each mark belongs to one report, so that
-- a device counts once. Marks are keyed hashes, whose key the issuer destroys with its
-- epoch; rows go when it has, and with the task.
CREATE TABLE spent (
  task   bigint NOT NULL REFERENCES task (id),
  round  bigint NOT NULL CHECK (round >= 0),
  mark   bytea  NOT NULL CHECK (length(mark) = 16),
  report bytea  NOT NULL CHECK (length(report) = 16),
  PRIMARY KEY (task, round, mark)
);
GRANT SELECT, INSERT, DELETE ON spent TO :service;

-- What the marks of a round should be: their number, and the XOR of a hash of each. The row
-- stays when the round is over, so that no mark of it is new again.
CREATE TABLE spent_round (
  task  bigint   NOT NULL REFERENCES task (id),
  round bigint   NOT NULL CHECK (round >= 0),
  marks bigint   NOT NULL DEFAULT 0 CHECK (marks >= 0),
  sum   bytea    NOT NULL DEFAULT decode(repeat('00', 32), 'hex') CHECK (length(sum) = 32),
  state smallint NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)), -- taking marks; over; over, and its marks are erased
  PRIMARY KEY (task, round)
);
CREATE INDEX spent_round_kept ON spent_round (task, round) WHERE state < 2;
GRANT SELECT, INSERT, UPDATE, DELETE ON spent_round TO :service;
