-- least: 4
-- Of which version the program of a replica is: the number of the last migration that it has.
-- A migration that takes something away waits for the end of those that need it (programs.go).
-- NULL is a program of a version before this migration's, or one that has not beaten since.
ALTER TABLE replica ADD COLUMN program bigint CHECK (program > 0);
GRANT UPDATE (program) ON replica TO :service;
