-- The rights of the role that serves, which are more than it needs where one of them is there.
-- name: role-rights
SELECT r.rolsuper, r.rolcreaterole OR r.rolcreatedb OR r.rolreplication OR r.rolbypassrls,
  pg_has_role(n.nspowner, 'USAGE'),
  has_any_column_privilege('release', 'UPDATE') OR has_table_privilege('release', 'DELETE') OR has_table_privilege('release', 'TRUNCATE')
FROM pg_roles AS r, pg_namespace AS n WHERE r.rolname = current_user AND n.nspname = current_schema()
