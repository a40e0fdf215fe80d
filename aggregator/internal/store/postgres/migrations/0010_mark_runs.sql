-- least: 4
-- Marks lie in runs of their round, as the ids of reports lie in those of their task, and no
-- more in a row each. A round that had such rows ends, for they cannot be carried over here:
-- what is looked for in a run is enciphered by the program. No release had them. A program of
-- version 8 or 9 that still runs gives no mark away any more.
UPDATE spent_round SET state = 2 WHERE marks > 0;
DROP TABLE spent;

-- Sorted runs of the marks of a round, each with the id of its report: as the table run. They
-- go when the issuer has destroyed the key of their epoch, and with the task.
CREATE TABLE spent_run (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task    bigint NOT NULL REFERENCES task (id),
  round   bigint NOT NULL CHECK (round >= 0),
  count   bigint NOT NULL CHECK (count > 0),
  entries bytea  NOT NULL CHECK (length(entries) = 32 * count), -- a mark and a report
  pages   bytea  NOT NULL CHECK (length(pages) = 48 * ((count + 127) / 128)), -- for each 128 entries the first mark, and their SHA-256
  filter  bytea  NOT NULL, -- a Bloom filter of the marks, under the store's key
  veil    bytea  CHECK (length(veil) = 16), -- of a run that is enciphered; what hides its digest, too, is made from it
  digest  bytea  NOT NULL CHECK (length(digest) = 32), -- of the set of entries, under the store's key
  sum     bytea  NOT NULL CHECK (length(sum) = 32) -- hash of the row
);
ALTER TABLE spent_run ALTER COLUMN entries SET STORAGE EXTERNAL; -- a part of them is read alone
ALTER TABLE spent_run ALTER COLUMN pages SET STORAGE EXTERNAL;
ALTER TABLE spent_run ALTER COLUMN filter SET STORAGE EXTERNAL;
CREATE INDEX spent_run_round ON spent_run (task, round, id);
GRANT SELECT, INSERT, DELETE ON spent_run TO :service;
