-- The rights of the role that serves, which are more than it needs where one of them is there.
-- A register of an issuer whose rules are gone or off can be changed, too.
-- name: role-rights
SELECT r.rolsuper, r.rolcreaterole OR r.rolcreatedb OR r.rolreplication OR r.rolbypassrls,
  pg_has_role(n.nspowner, 'USAGE'),
  has_any_column_privilege('release', 'UPDATE') OR has_table_privilege('release', 'DELETE') OR has_table_privilege('release', 'TRUNCATE'),
  coalesce(has_table_privilege(to_regclass('issuance'), 'DELETE')
    OR has_table_privilege(to_regclass('issuance'), 'TRUNCATE') OR has_any_column_privilege(to_regclass('issued'), 'UPDATE')
    OR has_table_privilege(to_regclass('issued'), 'TRUNCATE')
    OR (SELECT count(*) FROM pg_trigger WHERE tgrelid IN (to_regclass('issuance'), to_regclass('issued')) AND tgname IN ('issuance_grows', 'issued_stays')
      AND tgenabled IN ('O', 'A')) < 2, false)
FROM pg_roles AS r, pg_namespace AS n WHERE r.rolname = current_user AND n.nspname = current_schema()
