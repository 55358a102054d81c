-- All statements as they are sent to SQLite, those that differ by lengths of lists only once each.
-- Written by: go test ./pkg/history/sqlite -run TestStatementsForSQLite -update
BEGIN
----
BEGIN IMMEDIATE
----
COMMIT
----
DELETE FROM rondo_attributes WHERE (name, value) IN (VALUES (CAST($1 AS TEXT), CAST($2 AS TEXT))) AND shard = 0 AND created_at = $3 AND instance = $4
----
DELETE FROM rondo_executions WHERE (shard, instance, execution) IN (SELECT shard, instance, execution FROM (SELECT * FROM (SELECT shard, instance, execution FROM rondo_executions WHERE shard = 0 AND instance = $1 ORDER BY shard, instance, execution LIMIT 1000) b0
UNION ALL SELECT * FROM (SELECT shard, instance, execution FROM rondo_executions WHERE shard = 0 AND instance = $2 ORDER BY shard, instance, execution LIMIT 1000) b1) k LIMIT 1000)
----
DELETE FROM rondo_executions WHERE shard = $1 AND instance = $2 AND status = 'deleting'
----
DELETE FROM rondo_history WHERE (shard, instance, execution, event) IN (SELECT shard, instance, execution, event FROM (SELECT * FROM (SELECT shard, instance, execution, event FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution IN (SELECT execution FROM rondo_executions WHERE shard = $1 AND instance = $2 AND status = 'deleting') ORDER BY shard, instance, execution, event LIMIT 300) b0) k LIMIT 300) RETURNING last_event - event + 1
----
DELETE FROM rondo_history WHERE (shard, instance, execution, event) IN (SELECT shard, instance, execution, event FROM (SELECT * FROM (SELECT shard, instance, execution, event FROM rondo_history WHERE shard = 0 AND instance = $1 ORDER BY shard, instance, execution, event LIMIT 300) b0
UNION ALL SELECT * FROM (SELECT shard, instance, execution, event FROM rondo_history WHERE shard = 0 AND instance = $2 ORDER BY shard, instance, execution, event LIMIT 300) b1) k LIMIT 300) RETURNING last_event - event + 1
----
DELETE FROM rondo_instances WHERE (shard, instance) IN (VALUES (0, CAST($1 AS TEXT)), (0, CAST($2 AS TEXT)), (0, CAST($3 AS TEXT))) AND created_at < $4
----
DELETE FROM rondo_job_keys WHERE queue = $1
----
DELETE FROM rondo_job_keys WHERE queue = $1 AND key = $2
----
DELETE FROM rondo_job_keys WHERE queue = $1 AND key > $2 AND key <= $3
----
DELETE FROM rondo_job_locks WHERE queue = $1
----
DELETE FROM rondo_job_locks WHERE queue = $1 AND lock_id <= $2
----
DELETE FROM rondo_job_locks WHERE queue = $1 AND lock_id IN ($2, $3)
----
DELETE FROM rondo_job_queues WHERE queue = $1
----
DELETE FROM rondo_jobs WHERE queue = $1 AND (place, rank, position) IN (
		SELECT place, rank, position FROM rondo_jobs WHERE queue = $1 AND place >= $2 ORDER BY place, rank, position LIMIT $3) RETURNING place, priority
----
DELETE FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 AND position <= (SELECT max(position) FROM (
		SELECT position FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT $4) AS first) RETURNING id, priority, position, attempts, pushed_at, ready_at, trace, item
----
DELETE FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position BETWEEN $3 AND $4
----
DELETE FROM rondo_jobs WHERE queue = $1 AND place = 2 AND rank IN ($2, $3)
----
DELETE FROM rondo_outbox WHERE id = ?
----
DELETE FROM rondo_schedules WHERE id = $1 AND version = $2
----
DELETE FROM rondo_values WHERE (shard, instance) IN (VALUES (0, CAST($1 AS TEXT)), (0, CAST($2 AS TEXT)))
----
DELETE FROM rondo_values WHERE shard = 0 AND instance = ?
----
DELETE FROM rondo_values WHERE shard = 0 AND instance = ? AND key = ?
----
INSERT INTO rondo_attributes (instance, name, value, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
----
INSERT INTO rondo_executions (instance, execution, incarnation, name, version, engine, status, output, error, started_at, ended_at, last_event, history_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
----
INSERT INTO rondo_history (instance, execution, event, last_event, data) VALUES (?, ?, ?, ?, ?)
----
INSERT INTO rondo_instances (instance, incarnation, execution, last_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
----
INSERT INTO rondo_job_keys (queue, key, digest, items, expires_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (queue, key) DO UPDATE SET digest = excluded.digest, items = excluded.items, expires_at = excluded.expires_at
----
INSERT INTO rondo_job_locks (queue, lock_id, number, items, created_at, expires_at, returned) VALUES ($1, $2, $3, $4, $5, $6, FALSE)
----
INSERT INTO rondo_job_queues (queue, state) VALUES ($1, $2) ON CONFLICT (queue) DO NOTHING
----
INSERT INTO rondo_jobs (queue, place, rank, position, id, priority, size, pushed_at, ready_at, trace, item) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
----
INSERT INTO rondo_outbox (id, messages) VALUES (?, ?)
----
INSERT INTO rondo_outbox (shard, id, messages) VALUES ($1, $2, $3)
----
INSERT INTO rondo_schedules (id, version, token, wake_at, changed_at, data) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING
----
INSERT INTO rondo_values (instance, key, value, execution, set_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (shard, instance, key) DO UPDATE SET value = excluded.value, execution = excluded.execution, set_at = excluded.set_at
----
SELECT * FROM (SELECT * FROM (SELECT i.instance FROM rondo_instances i WHERE i.status = 'deleted' AND i.created_at < $1 AND i.shard = 0 ORDER BY i.created_at LIMIT 500) b0) b LIMIT 500
----
SELECT * FROM (SELECT * FROM (SELECT i.instance FROM rondo_instances i WHERE i.status = 'deleting' AND i.shard = 0 ORDER BY i.created_at LIMIT 100) b0) b LIMIT 100
----
SELECT * FROM (SELECT event, last_event, CAST(length(data) AS INT8) AS size FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution = $3 AND event <= $4 ORDER BY event DESC LIMIT 1) f UNION ALL SELECT event, last_event, CAST(length(data) AS INT8) AS size FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution = $3 AND event > $4 AND event <= $5 ORDER BY event
----
SELECT * FROM (SELECT event, last_event, data FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution = $3 AND event <= $4 ORDER BY event DESC LIMIT 1) f UNION ALL SELECT event, last_event, data FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution = $3 AND event > $4 AND event <= $5 ORDER BY event
----
SELECT * FROM (SELECT execution, CAST(coalesce(length(output), 0) + coalesce(length(error), 0) AS INT8) AS size FROM rondo_executions WHERE shard = $1 AND instance = $2 AND execution > $3 AND status NOT IN ('deleting', 'deleted') ORDER BY execution LIMIT 10) f UNION ALL SELECT execution, CAST(coalesce(length(output), 0) + coalesce(length(error), 0) AS INT8) AS size FROM rondo_instances WHERE shard = $1 AND instance = $2 AND execution > $3 AND status NOT IN ('deleting', 'deleted') ORDER BY execution LIMIT 10
----
SELECT * FROM (SELECT execution, incarnation, name, version, engine, status, output, error, started_at, ended_at, last_event, history_bytes FROM rondo_executions WHERE shard = $1 AND instance = $2 AND execution > $3 AND status NOT IN ('deleting', 'deleted') ORDER BY execution LIMIT 10) f UNION ALL SELECT execution, incarnation, name, version, engine, status, output, error, started_at, ended_at, last_event, history_bytes FROM rondo_instances WHERE shard = $1 AND instance = $2 AND execution > $3 AND status NOT IN ('deleting', 'deleted') ORDER BY execution LIMIT 10
----
SELECT * FROM (SELECT id, length(messages) FROM rondo_outbox WHERE shard = 0 AND id < $1 ORDER BY id LIMIT 10) b0
ORDER BY id LIMIT 10
----
SELECT 1 FROM rondo_instances WHERE shard = 0 AND wake_at < ? ORDER BY wake_at, instance LIMIT ?
----
SELECT 1 FROM rondo_outbox WHERE id < ? AND (leased_until IS NULL OR leased_until <= ?) ORDER BY id LIMIT ?
----
SELECT CASE WHEN custom_status_version <> $3 THEN custom_status END, custom_status_version FROM rondo_instances WHERE shard = $1 AND instance = $2 AND status NOT IN ('deleting', 'deleted')
----
SELECT CAST(coalesce(length(i.output), 0) + coalesce(length(i.error), 0) + coalesce(length(i.custom_status), 0) + coalesce(length(i.attributes), 0) AS INT8) FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b1
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b2
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b3
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b4
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b5
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b6
ORDER BY created_at DESC, instance DESC LIMIT 101) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT CAST(length(data) AS INT8) FROM rondo_schedules WHERE id > $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4
----
SELECT CAST(length(data) AS INT8) FROM rondo_schedules WHERE id > $1 ORDER BY id LIMIT $2
----
SELECT count(*) FROM (SELECT 1 FROM rondo_attributes a WHERE a.name = $1 AND a.value = $2 AND a.shard = 0 AND (SELECT true FROM rondo_instances i WHERE i.shard = a.shard AND i.instance = a.instance AND i.created_at = a.created_at AND i.status NOT IN ('deleting', 'deleted') AND (SELECT true FROM rondo_attributes x WHERE x.name = $3 AND x.value = $4 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance))
LIMIT 100) c
----
SELECT count(*) FROM (SELECT 1 FROM rondo_attributes a WHERE a.name = $1 AND a.value = $2 AND a.shard = 0 AND (SELECT true FROM rondo_instances i WHERE i.shard = a.shard AND i.instance = a.instance AND i.created_at = a.created_at AND i.status NOT IN ('deleting', 'deleted'))) c
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 0 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 0 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6
LIMIT 100) c
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'running' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'suspended' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'halted' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'cancelled' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'terminated' AND i.shard = 0 AND true
LIMIT 100) c
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE i.parent_instance = $1 AND i.status NOT IN ('deleting', 'deleted')
LIMIT 100) c
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE i.shard = 0 AND i.instance >= $1 AND i.instance < $2 AND i.status NOT IN ('deleting', 'deleted')
LIMIT 100) c
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 0 AND true
LIMIT 100) c
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE true AND i.status NOT IN ('deleting', 'deleted') AND (i.shard, i.instance) IN (VALUES (0, CAST($1 AS TEXT)), (0, CAST($2 AS TEXT)))
LIMIT 100) c
----
SELECT count(*) FROM (SELECT 1 FROM rondo_outbox LIMIT ?)
----
SELECT count(*) FROM sqlite_schema WHERE name = 'rondo_schema'
----
SELECT count(*), CAST(coalesce(sum(last_event), 0) AS INT8), (SELECT count(*) FROM rondo_outbox) FROM rondo_executions WHERE status NOT IN ('deleting', 'deleted') AND (shard, instance) NOT IN (SELECT shard, instance FROM rondo_instances WHERE status = 'deleting')
----
SELECT count(*), CAST(coalesce(sum(length(value)), 0) AS INT8) FROM rondo_values WHERE shard = $1 AND instance = $2
----
SELECT count(*), max(key) FROM (SELECT key FROM rondo_job_keys WHERE queue = $1 AND key > $2 ORDER BY key LIMIT $3) AS first
----
SELECT count(*), max(lock_id) FROM (SELECT lock_id FROM rondo_job_locks WHERE queue = $1 ORDER BY lock_id LIMIT $2) AS first
----
SELECT event, last_event, data FROM rondo_history WHERE shard = 0 AND instance = ? AND execution = ? AND event <= ? ORDER BY event
----
SELECT i.instance FROM rondo_instances i WHERE (i.shard, i.instance) IN (VALUES (0, CAST($1 AS TEXT)), (0, CAST($2 AS TEXT))) AND (i.status = 'deleting') IS TRUE ORDER BY i.shard, i.instance
----
SELECT i.instance FROM rondo_instances i WHERE (i.shard, i.instance) IN (VALUES (0, CAST($1 AS TEXT)), (0, CAST($2 AS TEXT))) AND (i.status IN ('deleting', 'deleted')) IS TRUE
----
SELECT i.instance FROM rondo_instances i WHERE (i.shard, i.instance) IN (VALUES (0, CAST($1 AS TEXT)), (0, CAST($2 AS TEXT)), (0, CAST($3 AS TEXT))) AND (i.status = 'deleted') IS TRUE ORDER BY i.shard, i.instance
----
SELECT i.instance, i.parent_instance, i.name, i.status, i.created_at, i.ended_at, i.last_event, i.attributes FROM rondo_instances i WHERE (i.shard, i.instance) IN (VALUES (0, CAST($1 AS TEXT))) AND i.status NOT IN ('deleting', 'deleted') ORDER BY i.shard, i.instance
----
SELECT i.instance, i.parent_instance, i.name, i.status, i.created_at, i.ended_at, i.last_event, i.attributes FROM rondo_instances i WHERE i.parent_instance IN ($1) AND i.status NOT IN ('deleting', 'deleted') ORDER BY i.shard, i.instance
----
SELECT i.instance, v.key, v.value, v.execution, v.set_at FROM rondo_instances i JOIN rondo_values v ON v.shard = i.shard AND v.instance = i.instance WHERE (i.shard, i.instance) IN (VALUES (0, CAST($1 AS TEXT)), (0, CAST($2 AS TEXT))) AND (i.status NOT IN ('deleting', 'deleted')) IS TRUE
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT a.shard, a.instance, a.created_at FROM rondo_attributes a WHERE a.name = $1 AND a.value = $2 AND a.shard = 0 AND (SELECT true FROM rondo_instances i WHERE i.shard = a.shard AND i.instance = a.instance AND i.created_at = a.created_at AND i.status NOT IN ('deleting', 'deleted') AND (SELECT true FROM rondo_attributes x WHERE x.name = $3 AND x.value = $4 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance)) ORDER BY a.created_at DESC, a.instance DESC LIMIT 2) b0
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 0 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 0 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b1
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'running' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'suspended' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b1
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'halted' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b2
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b3
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b4
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'cancelled' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b5
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'terminated' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b6
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.parent_instance = $1 AND i.status NOT IN ('deleting', 'deleted') ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.shard = 0 AND i.instance >= $1 AND i.instance < $2 AND i.status IN ($3, $4, $5, $6) ORDER BY i.instance LIMIT 101) b0
ORDER BY instance LIMIT 101) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.instance
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.shard = 0 AND i.instance >= $1 AND i.instance < $2 AND i.status NOT IN ('deleting', 'deleted') ORDER BY i.instance LIMIT 2) b0
ORDER BY instance LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.instance
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b1
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b2
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b3
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b4
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b5
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 101) b6
ORDER BY created_at DESC, instance DESC LIMIT 101) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE true AND i.status NOT IN ('deleting', 'deleted') AND (i.shard, i.instance) IN (VALUES (0, CAST($1 AS TEXT)), (0, CAST($2 AS TEXT))) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT id FROM rondo_outbox ORDER BY id LIMIT 1
----
SELECT id, length(messages) FROM rondo_outbox WHERE id < ? AND (leased_until IS NULL OR leased_until <= ?) ORDER BY id LIMIT ?
----
SELECT id, priority, position, attempts, pushed_at, ready_at, trace, item FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT $4
----
SELECT id, rank, position, priority, attempts > 0 OR reason IS NOT NULL FROM rondo_jobs
		WHERE queue = $1 AND place = 1 AND (rank, position) > (-1, -1) ORDER BY rank, position LIMIT $2
----
SELECT id, version, wake_at, changed_at, data FROM rondo_schedules WHERE id = $1
----
SELECT id, version, wake_at, changed_at, data FROM rondo_schedules WHERE id > $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4
----
SELECT id, version, wake_at, changed_at, data FROM rondo_schedules WHERE id > $1 ORDER BY id LIMIT $2
----
SELECT id, version, wake_at, changed_at, data FROM rondo_schedules WHERE wake_at >= $1 AND wake_at < $2 ORDER BY wake_at, id LIMIT $3
----
SELECT incarnation, last_event FROM rondo_executions WHERE shard = $1 AND instance = $2 AND execution = $3 AND status NOT IN ('deleting', 'deleted')
----
SELECT instance, incarnation, execution, last_event, custom_status_version, status, name, start_message, created_at, wake_at, attributes FROM rondo_instances WHERE shard = 0 AND instance IN (?, ?)
----
SELECT instance, incarnation, execution, last_event, custom_status_version, wake_at FROM rondo_instances WHERE shard = 0 AND wake_at < ? ORDER BY wake_at, instance LIMIT ?
----
SELECT key, digest, items, expires_at FROM rondo_job_keys WHERE queue = $1 AND key IN ($2, $3)
----
SELECT key, expires_at FROM rondo_job_keys WHERE queue = $1 ORDER BY expires_at LIMIT $2
----
SELECT lock_id, number, items, created_at, expires_at, returned FROM rondo_job_locks WHERE queue = $1 AND lock_id IN ($2, $3)
----
SELECT lock_id, number, items, created_at, expires_at, returned FROM rondo_job_locks WHERE queue = $1 AND returned = FALSE ORDER BY expires_at LIMIT $2
----
SELECT lock_id, number, items, created_at, expires_at, returned FROM rondo_job_locks WHERE queue = $1 AND returned = TRUE ORDER BY expires_at LIMIT $2
----
SELECT max(updated_at) FROM rondo_instances WHERE shard = $1 AND updated_at < $2 AND status NOT IN ('deleting', 'deleted')
----
SELECT queue, state FROM rondo_job_queues WHERE queue > $1 ORDER BY queue LIMIT $2
----
SELECT queue, state FROM rondo_job_queues WHERE starts ORDER BY queue
----
SELECT rank, position, priority FROM rondo_jobs WHERE queue = $1 AND place = 3 AND (rank, position) > (-1, -1) ORDER BY rank, position LIMIT $2
----
SELECT rank, position, priority FROM rondo_jobs WHERE queue = $1 AND place = 3 AND rank = $2 AND position = $3
----
SELECT rank, reason, id, priority, position, attempts, pushed_at, ready_at, trace, item FROM rondo_jobs
		WHERE queue = $1 AND place = 3 AND (rank, position) > ($2, $3) ORDER BY rank, position LIMIT $4
----
SELECT ready_at FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT 1
----
SELECT shard, instance, incarnation, execution, last_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at FROM rondo_instances WHERE shard = $1 AND instance = $2
----
SELECT shard, instance, incarnation, execution, last_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at FROM rondo_instances WHERE shard = 0 AND instance IN (?, ?)
----
SELECT size FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT $4
----
SELECT state FROM rondo_job_queues WHERE queue = $1
----
SELECT state, clock_timestamp() FROM rondo_job_queues WHERE queue = $1
----
SELECT status, count(*), CAST(sum(last_event) AS INT8) FROM rondo_instances GROUP BY status
----
SELECT system, beats, beat_at FROM rondo_system WHERE id = 1
----
SELECT v.key, v.value, v.execution, v.set_at
	FROM rondo_instances i JOIN rondo_values v ON v.shard = i.shard AND v.instance = i.instance
	WHERE i.shard = $1 AND i.instance = $2 AND i.status NOT IN ('deleting', 'deleted')
----
SELECT v.key, v.value, v.execution, v.set_at
	FROM rondo_instances i JOIN rondo_values v ON v.shard = i.shard AND v.instance = i.instance
	WHERE i.shard = $1 AND i.instance = $2 AND i.status NOT IN ('deleting', 'deleted') AND v.key = $3
----
SELECT version FROM rondo_schema WHERE id = 1
----
SELECT wake_at, CAST(length(data) AS INT8) FROM rondo_schedules WHERE wake_at >= $1 AND wake_at < $2 ORDER BY wake_at, id LIMIT $3
----
UPDATE rondo_executions SET status = 'deleting' WHERE (shard, instance, execution) IN (SELECT shard, instance, execution FROM rondo_executions WHERE shard = $1 AND instance = $2 AND status NOT IN ('deleting', 'deleted') ORDER BY shard, instance, execution LIMIT 1000)
----
UPDATE rondo_instances SET (execution, last_event, status, name, version, engine, fresh, output, error, custom_status, custom_status_version, history_bytes, unread, started_at, updated_at, ended_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (execution, last_event, status, name, version, engine, fresh, output, error, custom_status, custom_status_version, history_bytes, unread, started_at, updated_at, ended_at, wake_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (execution, last_event, status, name, version, engine, fresh, output, error, custom_status_version, history_bytes, unread, started_at, updated_at, ended_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (execution, last_event, status, name, version, engine, fresh, output, error, custom_status_version, history_bytes, unread, started_at, updated_at, ended_at, wake_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (execution, last_event, version, engine, fresh, output, error, custom_status, custom_status_version, history_bytes, unread, started_at, updated_at, ended_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (execution, last_event, version, engine, fresh, output, error, custom_status, custom_status_version, history_bytes, unread, started_at, updated_at, ended_at, wake_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (execution, last_event, version, engine, fresh, output, error, custom_status_version, history_bytes, unread, started_at, updated_at, ended_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (execution, last_event, version, engine, fresh, output, error, custom_status_version, history_bytes, unread, started_at, updated_at, ended_at, wake_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (incarnation, execution, last_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (incarnation, execution, last_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (incarnation, execution, last_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (incarnation, execution, last_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (incarnation, execution, last_event, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (incarnation, execution, last_event, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (incarnation, execution, last_event, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET (incarnation, execution, last_event, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at) = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE shard = 0 AND instance = ? AND incarnation = ? AND execution = ? AND last_event = ?
----
UPDATE rondo_instances SET status = 'deleted', last_event = 0 WHERE (shard, instance) IN (VALUES (0, CAST($1 AS TEXT)), (0, CAST($2 AS TEXT)))
----
UPDATE rondo_instances SET status = 'deleting', incarnation = '', execution = 0, last_event = -1,
			name = '', version = '', engine = 0, fresh = false,
			parent_instance = NULL, parent_incarnation = NULL, parent_execution = NULL, parent_event = NULL, attributes = NULL, trace = NULL,
			output = NULL, error = NULL, custom_status = NULL, custom_status_version = 0, history_bytes = 0, unread = 0,
			wake_at = NULL, ended_at = NULL, created_at = CASE WHEN ended_at < $2 AND updated_at < $2 THEN coalesce($3, updated_at) ELSE $1 END, updated_at = $1 WHERE (shard, instance) IN (VALUES (0, CAST($4 AS TEXT)), (0, CAST($5 AS TEXT)))
----
UPDATE rondo_instances SET wake_at = ? WHERE shard = 0 AND instance = ?
----
UPDATE rondo_job_locks SET expires_at = $3, returned = $4 WHERE queue = $1 AND lock_id = $2
----
UPDATE rondo_job_queues SET state = $2, starts = $3 WHERE queue = $1
----
UPDATE rondo_jobs SET attempts = attempts - CAST($8 AS INT8),
		place = CASE WHEN attempts >= CAST($5 AS INT8) AND CAST($5 AS INT8) > 0 THEN 3 ELSE CAST($3 AS INT8) END,
		rank = CASE WHEN attempts >= CAST($5 AS INT8) AND CAST($5 AS INT8) > 0 THEN CAST($6 AS INT8) WHEN CAST($3 AS INT8) = 1 THEN CAST($4 AS INT8) ELSE priority END,
		reason = CASE WHEN CAST($8 AS INT8) > 0 OR attempts >= CAST($5 AS INT8) AND CAST($5 AS INT8) > 0 THEN CAST($7 AS TEXT) ELSE reason END
		WHERE queue = $1 AND place = 2 AND rank = $2 RETURNING place, priority, position
----
UPDATE rondo_jobs SET place = 0, rank = priority, position = $4, attempts = 0, reason = NULL, ready_at = $5
		WHERE queue = $1 AND place = 3 AND rank = $2 AND position = $3
----
UPDATE rondo_jobs SET place = 0, rank = priority, position = $4, ready_at = CASE WHEN attempts = 0 AND reason IS NULL THEN $5 ELSE ready_at END
		WHERE queue = $1 AND place = 1 AND rank = $2 AND position = $3
----
UPDATE rondo_jobs SET place = 2, rank = $5, attempts = attempts + 1 WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 AND position <= (SELECT max(position) FROM (
		SELECT position FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT $4) AS first) RETURNING id, priority, position, attempts, pushed_at, ready_at, trace, item
----
UPDATE rondo_jobs SET place = 2, rank = r.lock, attempts = attempts + 1 FROM (SELECT CAST($5 AS INT8) AS low, CAST($6 AS INT8) AS high, CAST($7 AS INT8) AS lock UNION ALL SELECT CAST($8 AS INT8) AS low, CAST($9 AS INT8) AS high, CAST($10 AS INT8) AS lock) AS r
		WHERE queue = $1 AND place = 0 AND rank = $2 AND position BETWEEN $3 AND $4 AND position BETWEEN r.low AND r.high
----
UPDATE rondo_jobs SET rank = 2 WHERE queue = $1 AND place = 2 AND rank = 1 AND id IN ($2, $3)
----
UPDATE rondo_outbox SET leased_until = ? WHERE id = ? RETURNING messages
----
UPDATE rondo_schedules SET version = version + 1, token = $3, wake_at = $4, changed_at = $5, data = $6 WHERE id = $1 AND version = $2
----
UPDATE rondo_system SET system = CAST($1 AS TEXT), beats = $2, beat_at = $3 WHERE id = 1 AND system = CAST($4 AS TEXT) AND beats = $5
