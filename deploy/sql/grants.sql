-- What the roles of roles.sql may do with the tables, for PostgreSQL and CockroachDB.
-- rondo_owner executes this after each `orders migrate`, before what was built with it is deployed. It may be executed again at any time.

-- Orchestrators change rows and never tables. History is written once: its rows may be removed, and not be changed.
GRANT SELECT ON rondo_schema TO rondo_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON rondo_instances TO rondo_run;
GRANT SELECT, INSERT, DELETE ON rondo_history TO rondo_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON rondo_executions TO rondo_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON rondo_values TO rondo_run;
GRANT SELECT, INSERT, DELETE ON rondo_attributes TO rondo_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON rondo_outbox TO rondo_run;
GRANT SELECT, INSERT, UPDATE ON rondo_marks TO rondo_run;
GRANT SELECT, UPDATE ON rondo_system TO rondo_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON rondo_schedules TO rondo_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON rondo_job_queues TO rondo_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON rondo_jobs TO rondo_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON rondo_job_locks TO rondo_run;
GRANT SELECT, INSERT, UPDATE, DELETE ON rondo_job_keys TO rondo_run;

-- `rondo check`, and whoever wants to look.
GRANT SELECT ON rondo_schema TO rondo_read;
GRANT SELECT ON rondo_instances TO rondo_read;
GRANT SELECT ON rondo_history TO rondo_read;
GRANT SELECT ON rondo_executions TO rondo_read;
GRANT SELECT ON rondo_values TO rondo_read;
GRANT SELECT ON rondo_attributes TO rondo_read;
GRANT SELECT ON rondo_outbox TO rondo_read;
GRANT SELECT ON rondo_marks TO rondo_read;
GRANT SELECT ON rondo_system TO rondo_read;
GRANT SELECT ON rondo_schedules TO rondo_read;
GRANT SELECT ON rondo_job_queues TO rondo_read;
GRANT SELECT ON rondo_jobs TO rondo_read;
GRANT SELECT ON rondo_job_locks TO rondo_read;
GRANT SELECT ON rondo_job_keys TO rondo_read;
