-- least: 4
-- What an issuer has answered is a ledger: no role of the service lowers the number of an
-- epoch, lets one that is counted go on, knows a number again that is in doubt, or takes a
-- request out before its key is destroyed. Names are looked up in this schema alone, whatever
-- the session says.
CREATE FUNCTION issuance_grows() RETURNS trigger LANGUAGE plpgsql SET search_path = :schema, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' AND (NEW.requests <> 0 OR NEW.state <> 0)
    OR TG_OP = 'UPDATE' AND (NEW.requests NOT IN (OLD.requests, OLD.requests + 1) OR NEW.requests > OLD.requests AND OLD.state > 0
      OR NEW.state < OLD.state OR NEW.known AND NOT OLD.known OR (NEW.deployment, NEW.epoch) <> (OLD.deployment, OLD.epoch)) THEN
    RAISE EXCEPTION 'what an issuer has answered only grows' USING ERRCODE = 'check_violation', TABLE = 'issuance', CONSTRAINT = 'issuance_grows';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER issuance_grows BEFORE INSERT OR UPDATE ON issuance FOR EACH ROW EXECUTE FUNCTION issuance_grows();

CREATE FUNCTION issued_stays() RETURNS trigger LANGUAGE plpgsql SET search_path = :schema, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF EXISTS (SELECT 1 FROM issuance WHERE deployment = NEW.deployment AND epoch = NEW.epoch AND state = 0) THEN
      RETURN NEW;
    END IF;
  ELSIF EXISTS (SELECT 1 FROM issuance WHERE deployment = OLD.deployment AND epoch = OLD.epoch AND state = 2) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'requests are entered until their epoch is counted, and stay until its key is destroyed'
    USING ERRCODE = 'check_violation', TABLE = 'issued', CONSTRAINT = 'issued_stays';
END $$;
CREATE TRIGGER issued_stays BEFORE INSERT OR DELETE ON issued FOR EACH ROW EXECUTE FUNCTION issued_stays();

REVOKE DELETE, TRUNCATE ON issuance FROM PUBLIC, CURRENT_USER;
REVOKE UPDATE, TRUNCATE ON issued FROM PUBLIC, CURRENT_USER;
