-- Files that lost their last row, until their removal is durable. The triggers write the
-- tombstone in the transaction that makes a file needless, whichever that is, so that no
-- file is ever deleted because it is unknown.
CREATE TABLE tombstone (
  name TEXT PRIMARY KEY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER segment_gone AFTER DELETE ON segment
BEGIN INSERT OR IGNORE INTO tombstone (name) VALUES (OLD.name); END;
CREATE TRIGGER segment_set_aside AFTER UPDATE OF state ON segment WHEN NEW.state = 1 AND OLD.state = 0
BEGIN INSERT OR IGNORE INTO tombstone (name) VALUES (OLD.name); END;
CREATE TRIGGER run_gone AFTER DELETE ON run
BEGIN INSERT OR IGNORE INTO tombstone (name) VALUES (OLD.name); END;
CREATE TRIGGER noise_gone AFTER DELETE ON noise
BEGIN INSERT OR IGNORE INTO tombstone (name) VALUES (OLD.name); END;

-- A segment that was lost and is taken back has its old name.
CREATE TRIGGER segment_back AFTER INSERT ON segment
BEGIN DELETE FROM tombstone WHERE name = NEW.name; END;
