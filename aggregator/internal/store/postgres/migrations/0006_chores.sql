-- least: 4
-- Work that one replica does at a time; see chore.go. The one that does it says so until a
-- moment, and notes where the next pass goes on, whoever makes it.
CREATE TABLE chore (
  name   text        PRIMARY KEY,
  holder bytea       NOT NULL CHECK (length(holder) = 16),
  until  timestamptz NOT NULL, -- by the server's clock
  place  text        COLLATE "C" NOT NULL DEFAULT ''
);
GRANT SELECT, INSERT, UPDATE (holder, until, place) ON chore TO :service;

-- Objects of object storage that no row named when they were listed, and since when; see
-- stray.go.
CREATE TABLE stray (
  object text        COLLATE "C" PRIMARY KEY,
  seen   timestamptz NOT NULL DEFAULT now() -- first
);
GRANT SELECT, INSERT, DELETE ON stray TO :service;

-- Objects that are rows and were never named.
CREATE INDEX object_unnamed ON object (since) WHERE slices = 0;
