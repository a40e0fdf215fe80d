-- least: 1
-- The journal of one training: who has it, how many events there are, and a hash over all of
-- them: head = SHA-256(head before, event). The row is locked by whoever writes anything.
CREATE TABLE journal (
  one    boolean PRIMARY KEY DEFAULT true CHECK (one),
  holder bytea  CHECK (length(holder) = 16), -- drawn by the process that has it; NULL: none has
  beats  bigint NOT NULL DEFAULT 0 CHECK (beats >= 0), -- how often a holder was seen
  events bigint NOT NULL DEFAULT 0 CHECK (events >= 0),
  head   bytea  NOT NULL DEFAULT decode(repeat('00', 32), 'hex') CHECK (length(head) = 32)
);
INSERT INTO journal DEFAULT VALUES;
GRANT SELECT, UPDATE ON journal TO :service;

CREATE TABLE event (
  number  bigint PRIMARY KEY CHECK (number >= 0),
  content bytea  NOT NULL CHECK (length(content) BETWEEN 1 AND 1024)
);
GRANT SELECT, INSERT ON event TO :service;

-- Models, sums and states. What is in them is noise or nearly so, and no compression finds
-- anything in it.
CREATE TABLE file (
  name    text  PRIMARY KEY CHECK (name ~ '^[a-z]+/[0-9a-z]+$'),
  content bytea NOT NULL
);
ALTER TABLE file ALTER COLUMN content SET STORAGE EXTERNAL;
GRANT SELECT, INSERT, UPDATE, DELETE ON file TO :service;
