-- least: 4
-- From here on tasks get secrets, and what is written of them lies under their keys, which
-- programs of the version before cannot read.
INSERT INTO vault (purpose) VALUES (4);
INSERT INTO vault_mark (purpose) VALUES (4);
