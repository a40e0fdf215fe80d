-- The largest time at which the store was seen in use; see package steady.
CREATE TABLE clock (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  seen INTEGER NOT NULL
) STRICT;
