-- The roles of a Rondo, for PostgreSQL and CockroachDB: one that makes the tables, one with which orchestrators run, one that reads. Workers need none.
-- An administrator executes this once, in the database, before the first `orders migrate`: see "Rights" in docs/database.md.
-- The roles have no passwords yet: ALTER ROLE rondo_run WITH PASSWORD '…', or certificates.

CREATE ROLE rondo_owner LOGIN;
CREATE ROLE rondo_run LOGIN;
CREATE ROLE rondo_read LOGIN;

-- Otherwise everybody may make tables, on CockroachDB and on PostgreSQL before 15.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO rondo_owner;
GRANT USAGE ON SCHEMA public TO rondo_run;
GRANT USAGE ON SCHEMA public TO rondo_read;
