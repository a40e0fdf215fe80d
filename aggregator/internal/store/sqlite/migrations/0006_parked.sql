-- A segment whose job ended with an answer that fits no request: it keeps its file, its reports still wait, and no worker claims
-- it until an operator has decided what becomes of it.
ALTER TABLE segment ADD COLUMN parked INTEGER NOT NULL DEFAULT 0
  CHECK (parked = 0 OR (parked = 1 AND state = 0 AND lease_token IS NULL));
