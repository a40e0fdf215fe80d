-- least: 4
-- What the issuer beside the aggregator has answered, by epoch of a deployment: how many
-- requests, and a hash of each, so that each is counted once and no more are answered than
-- the epoch's manifest says, whichever process is asked. The row stays when its requests go.
CREATE TABLE issuance (
  deployment bytea    NOT NULL CHECK (length(deployment) = 32),
  epoch      bigint   NOT NULL CHECK (epoch BETWEEN 0 AND 4294967295),
  requests   bigint   NOT NULL DEFAULT 0 CHECK (requests >= 0),
  state      smallint NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)), -- answering; counted, and nothing more is answered; the key is destroyed
  known      boolean  NOT NULL DEFAULT true, -- false: the database was put back while requests were answered
  PRIMARY KEY (deployment, epoch)
);
GRANT SELECT, INSERT, UPDATE (requests, state, known) ON issuance TO :service;

CREATE TABLE issued (
  deployment bytea  NOT NULL,
  epoch      bigint NOT NULL,
  request    bytea  NOT NULL CHECK (length(request) = 32),
  PRIMARY KEY (deployment, epoch, request),
  FOREIGN KEY (deployment, epoch) REFERENCES issuance (deployment, epoch)
);
GRANT SELECT, INSERT, DELETE ON issued TO :service;
