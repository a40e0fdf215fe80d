-- least: 4
-- The processes of the aggregator, by what each of them said of itself last: those that live,
-- and for a day those that do not any more. Moments are microseconds by the server's clock.
-- No other row is written as often by one process alone: one that does not find its own again
-- as it left it knows that the database was put back; see member.go.
CREATE TABLE member (
  name  text    PRIMARY KEY CHECK (name ~ '^[0-9a-f]{32}$'), -- random, of one life of a process
  life  text    NOT NULL, -- its row in replica, of purpose 1; empty where it makes no HPKE keys
  began bigint  NOT NULL,
  seen  bigint  NOT NULL,
  beats bigint  NOT NULL CHECK (beats > 0), -- how often it was seen
  ended boolean NOT NULL DEFAULT false, -- it was stopped in order
  said  bytea   NOT NULL CHECK (length(said) <= 65536) -- JSON: status.Replica
);
ALTER TABLE member SET (fillfactor = 50); -- its rows are replaced, and their versions stay near
GRANT SELECT, INSERT, UPDATE (life, seen, beats, ended, said), DELETE ON member TO :service;
