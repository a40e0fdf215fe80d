-- What pgdb itself keeps in a schema. :service is the role of the replicas.
CREATE SCHEMA IF NOT EXISTS :schema;
SET LOCAL search_path = :schema, pg_temp;

-- How far the schema has come, and which version a program must have at least for it. The
-- lock of this row is the turn to migrate.
CREATE TABLE version (
  one    boolean PRIMARY KEY DEFAULT true CHECK (one),
  number bigint  NOT NULL CHECK (number >= 0),
  least  bigint  NOT NULL CHECK (least BETWEEN 0 AND number)
);
INSERT INTO version (number, least) VALUES (0, 0);

CREATE TABLE migration (
  number bigint PRIMARY KEY CHECK (number > 0),
  name   text   NOT NULL,
  sum    bytea  NOT NULL CHECK (length(sum) = 32), -- SHA-256 of the file
  least  bigint NOT NULL,
  at     timestamptz NOT NULL DEFAULT now()
);

-- What became of transactions: done is written by the transaction itself, the opposite by
-- whoever looked for it in vain. A token begins with its time, so that the index grows at
-- one end.
CREATE TABLE outcome (
  token bytea PRIMARY KEY CHECK (length(token) = 16),
  done  boolean NOT NULL
);

GRANT USAGE ON SCHEMA :schema TO :service;
GRANT SELECT ON version, migration TO :service;
GRANT SELECT, INSERT, DELETE ON outcome TO :service;
