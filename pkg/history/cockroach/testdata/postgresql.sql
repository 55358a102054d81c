-- All statements as they are sent to PostgreSQL: those that depend on what is asked for once each,
-- and with lists of 2 shards instead of all.
-- Run on PostgreSQL by the other tests of this package.
-- Written by: go test ./pkg/history/cockroach -run TestStatementsForPostgreSQL -update
SET default_transaction_isolation = 'read committed'; SET enable_seqscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan; SELECT set_config(name, '256kB', false) FROM pg_settings WHERE name = 'backend_flush_after' AND source = 'default'
----
SET plan_cache_mode = force_generic_plan
----
SET plan_cache_mode = force_custom_plan
----
CREATE TABLE IF NOT EXISTS rondo_schema (
	id         INT8 PRIMARY KEY,
	version    INT8 NOT NULL,
	holder     TEXT,
	held_until TIMESTAMPTZ
)
----
INSERT INTO rondo_schema (id, version) VALUES (1, 0) ON CONFLICT (id) DO NOTHING
----
SELECT version FROM rondo_schema WHERE id = 1
----
UPDATE rondo_schema SET holder = $1, held_until = now() + $2::INTERVAL
	WHERE id = 1 AND version < $3 AND (holder IS NULL OR holder = $1 OR held_until < now())
----
UPDATE rondo_schema SET held_until = now() + $2::INTERVAL WHERE id = 1 AND holder = $1
----
UPDATE rondo_schema SET version = $1 WHERE id = 1 AND version = $2 AND holder = $3
----
UPDATE rondo_schema SET holder = NULL, held_until = NULL WHERE id = 1 AND holder = $1
----
SET statement_timeout = 0
----
RESET statement_timeout
----
CREATE TABLE IF NOT EXISTS rondo_instances (
	execution             INT8 NOT NULL,
	last_event            INT8 NOT NULL,
	expected_execution    INT8 NOT NULL DEFAULT 0,
	expected_event        INT8 NOT NULL DEFAULT 0,
	custom_status_version INT8 NOT NULL,
	history_bytes         INT8 NOT NULL,
	unread                INT8 NOT NULL,
	engine                INT8 NOT NULL,
	parent_execution      INT8,
	parent_event          INT8,
	created_at            TIMESTAMPTZ NOT NULL,
	started_at            TIMESTAMPTZ,
	updated_at            TIMESTAMPTZ NOT NULL,
	ended_at              TIMESTAMPTZ,
	wake_at               TIMESTAMPTZ,
	shard                 INT2 NOT NULL,
	fresh                 BOOL NOT NULL,
	instance              TEXT COLLATE "C" NOT NULL,
	incarnation           TEXT NOT NULL,
	expected_incarnation  TEXT NOT NULL DEFAULT '',
	status                TEXT COLLATE "C" NOT NULL,
	name                  TEXT COLLATE "C" NOT NULL,
	version               TEXT NOT NULL,
	parent_instance       TEXT COLLATE "C",
	parent_incarnation    TEXT,
	trace                 TEXT,
	start_message         TEXT,
	attributes            BYTEA,
	error                 BYTEA,
	custom_status         BYTEA,
	output                BYTEA,
	PRIMARY KEY (shard, instance)
) WITH (fillfactor = 80)
----
CREATE INDEX IF NOT EXISTS rondo_instances_by_status ON rondo_instances (status, shard, created_at, instance)
----
CREATE INDEX IF NOT EXISTS rondo_instances_by_name ON rondo_instances (name, status, shard, created_at, instance)
----
CREATE INDEX IF NOT EXISTS rondo_instances_by_parent ON rondo_instances (parent_instance, created_at, instance) WHERE parent_instance IS NOT NULL
----
CREATE INDEX IF NOT EXISTS rondo_instances_by_wake ON rondo_instances (shard, wake_at, instance) WHERE wake_at IS NOT NULL
----
CREATE TABLE IF NOT EXISTS rondo_history (
	execution  INT8 NOT NULL,
	event      INT8 NOT NULL,
	last_event INT8 NOT NULL,
	shard      INT2 NOT NULL,
	instance   TEXT COLLATE "C" NOT NULL,
	data       BYTEA NOT NULL,
	PRIMARY KEY (shard, instance, execution, event)
)
----
CREATE TABLE IF NOT EXISTS rondo_executions (
	execution     INT8 NOT NULL,
	last_event    INT8 NOT NULL,
	history_bytes INT8 NOT NULL,
	engine        INT8 NOT NULL,
	started_at    TIMESTAMPTZ,
	ended_at      TIMESTAMPTZ,
	shard         INT2 NOT NULL,
	instance      TEXT COLLATE "C" NOT NULL,
	incarnation   TEXT NOT NULL,
	name          TEXT NOT NULL,
	version       TEXT NOT NULL,
	status        TEXT NOT NULL,
	error         BYTEA,
	output        BYTEA,
	PRIMARY KEY (shard, instance, execution)
)
----
CREATE TABLE IF NOT EXISTS rondo_values (
	execution INT8 NOT NULL,
	set_at    TIMESTAMPTZ,
	shard     INT2 NOT NULL,
	instance  TEXT COLLATE "C" NOT NULL,
	key       TEXT COLLATE "C" NOT NULL,
	value     BYTEA,
	PRIMARY KEY (shard, instance, key)
)
----
CREATE TABLE IF NOT EXISTS rondo_attributes (
	created_at TIMESTAMPTZ NOT NULL,
	shard      INT2 NOT NULL,
	name       TEXT COLLATE "C" NOT NULL,
	value      TEXT COLLATE "C" NOT NULL,
	instance   TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (name, value, shard, created_at, instance)
)
----
CREATE TABLE IF NOT EXISTS rondo_outbox (
	id          INT8 NOT NULL,
	leased_until TIMESTAMPTZ,
	shard       INT2 NOT NULL,
	messages    BYTEA NOT NULL,
	PRIMARY KEY (shard, id)
)
----
CREATE TABLE IF NOT EXISTS rondo_marks (
	value INT8 NOT NULL,
	shard INT2 NOT NULL,
	name  TEXT NOT NULL,
	PRIMARY KEY (name, shard)
)
----
CREATE TABLE IF NOT EXISTS rondo_job_queues (
	starts BOOL NOT NULL DEFAULT FALSE,
	queue  TEXT COLLATE "C" NOT NULL,
	state  BYTEA NOT NULL,
	PRIMARY KEY (queue)
) WITH (fillfactor = 80)
----
CREATE INDEX IF NOT EXISTS rondo_job_queues_starting ON rondo_job_queues (queue) WHERE starts
----
CREATE TABLE IF NOT EXISTS rondo_jobs (
	rank      INT8 NOT NULL,
	position  INT8 NOT NULL,
	id        INT8 NOT NULL,
	attempts  INT8 NOT NULL DEFAULT 0,
	size      INT8 NOT NULL,
	pushed_at TIMESTAMPTZ NOT NULL,
	ready_at  TIMESTAMPTZ NOT NULL,
	place     INT2 NOT NULL,
	priority  INT2 NOT NULL,
	queue     TEXT COLLATE "C" NOT NULL,
	trace     TEXT,
	reason    TEXT,
	item      BYTEA NOT NULL,
	PRIMARY KEY (queue, place, rank, position)
)
----
CREATE TABLE IF NOT EXISTS rondo_job_locks (
	number     INT8 NOT NULL,
	items      INT8 NOT NULL,
	created_at TIMESTAMPTZ NOT NULL,
	expires_at TIMESTAMPTZ NOT NULL,
	returned   BOOL NOT NULL,
	queue      TEXT COLLATE "C" NOT NULL,
	lock_id    TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (queue, lock_id)
)
----
CREATE INDEX IF NOT EXISTS rondo_job_locks_by_expiry ON rondo_job_locks (queue, returned, expires_at)
----
CREATE TABLE IF NOT EXISTS rondo_job_keys (
	items      INT8 NOT NULL,
	expires_at TIMESTAMPTZ NOT NULL,
	queue      TEXT COLLATE "C" NOT NULL,
	key        TEXT COLLATE "C" NOT NULL,
	digest     TEXT NOT NULL,
	PRIMARY KEY (queue, key)
)
----
CREATE INDEX IF NOT EXISTS rondo_job_keys_by_expiry ON rondo_job_keys (queue, expires_at)
----
CREATE TABLE IF NOT EXISTS rondo_system (
	id      INT8 PRIMARY KEY,
	beats   INT8 NOT NULL,
	beat_at TIMESTAMPTZ NOT NULL,
	system  TEXT NOT NULL
)
----
INSERT INTO rondo_system (id, beats, beat_at, system) VALUES (1, 0, now(), '') ON CONFLICT (id) DO NOTHING
----
CREATE TABLE IF NOT EXISTS rondo_schedules (
	version    INT8 NOT NULL,
	token      INT8 NOT NULL,
	wake_at    TIMESTAMPTZ,
	changed_at TIMESTAMPTZ NOT NULL,
	id         TEXT COLLATE "C" NOT NULL,
	data       BYTEA NOT NULL,
	PRIMARY KEY (id)
) WITH (fillfactor = 80)
----
CREATE INDEX IF NOT EXISTS rondo_schedules_by_wake ON rondo_schedules (wake_at, id) WHERE wake_at IS NOT NULL
----
WITH won AS (INSERT INTO rondo_instances (shard, instance, incarnation, execution, last_event, status, name, version, engine, fresh, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at)
	SELECT shard, instance, incarnation, execution, last_event, status, name, version, engine, fresh, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at
	FROM (SELECT unnest($1::INT2[]) AS shard, unnest($2::TEXT[]) AS instance, unnest($3::TEXT[]) AS incarnation, unnest($4::INT8[]) AS execution, unnest($5::INT8[]) AS last_event, unnest($6::TEXT[]) AS status, unnest($7::TEXT[]) AS name, unnest($8::TEXT[]) AS version, unnest($9::INT8[]) AS engine, unnest($10::BOOL[]) AS fresh, unnest($11::TEXT[]) AS trace, unnest($12::TEXT[]) AS start_message, unnest($13::BYTEA[]) AS output, unnest($14::BYTEA[]) AS error, unnest($15::BYTEA[]) AS custom_status, unnest($16::INT8[]) AS custom_status_version, unnest($17::INT8[]) AS history_bytes, unnest($18::INT8[]) AS unread, unnest($19::TIMESTAMPTZ[]) AS created_at, unnest($20::TIMESTAMPTZ[]) AS started_at, unnest($21::TIMESTAMPTZ[]) AS updated_at, unnest($22::TIMESTAMPTZ[]) AS ended_at, unnest($23::TIMESTAMPTZ[]) AS wake_at) AS w
	WHERE (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance) IS NULL
	RETURNING instance),
h AS (INSERT INTO rondo_history (shard, instance, execution, event, last_event, data)
	SELECT shard, instance, execution, event, last_event, data
	FROM (SELECT unnest($24::INT2[]) AS shard, unnest($25::TEXT[]) AS instance, unnest($26::INT8[]) AS execution, unnest($27::INT8[]) AS event, unnest($28::INT8[]) AS last_event, unnest($29::BYTEA[]) AS data) AS r
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE),
o AS (INSERT INTO rondo_outbox (shard, id, messages)
	SELECT $30::INT2, $31::INT8, m.messages FROM (SELECT CASE WHEN (SELECT count(*) FROM won) = $32::INT8 THEN $33::BYTEA
	ELSE (SELECT string_agg(substring($33::BYTEA, r.place::INT4, r.size::INT4), ''::BYTEA ORDER BY r.place)
	FROM unnest($34::TEXT[], $35::INT8[], $36::INT8[]) AS r(instance, place, size)
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE) END AS messages OFFSET 0) m
	WHERE length(m.messages) > 0)
SELECT instance FROM won
----
WITH won AS (INSERT INTO rondo_instances AS i (shard, instance, incarnation, execution, last_event, expected_event, status, name, version, engine, fresh, output, error, custom_status, custom_status_version, history_bytes, unread, started_at, updated_at, ended_at, wake_at, created_at)
	SELECT shard, instance, incarnation, execution, last_event, expected_event, status, name, version, engine, fresh, output, error, custom_status, custom_status_version, history_bytes, unread, started_at, updated_at, ended_at, wake_at, updated_at
	FROM (SELECT unnest($1::INT2[]) AS shard, unnest($2::TEXT[]) AS instance, unnest($3::TEXT[]) AS incarnation, unnest($4::INT8[]) AS execution, unnest($5::INT8[]) AS last_event, unnest($6::INT8[]) AS expected_event, unnest($7::TEXT[]) AS status, unnest($8::TEXT[]) AS name, unnest($9::TEXT[]) AS version, unnest($10::INT8[]) AS engine, unnest($11::BOOL[]) AS fresh, unnest($12::BYTEA[]) AS output, unnest($13::BYTEA[]) AS error, unnest($14::BYTEA[]) AS custom_status, unnest($15::INT8[]) AS custom_status_version, unnest($16::INT8[]) AS history_bytes, unnest($17::INT8[]) AS unread, unnest($18::TIMESTAMPTZ[]) AS started_at, unnest($19::TIMESTAMPTZ[]) AS updated_at, unnest($20::TIMESTAMPTZ[]) AS ended_at, unnest($21::TIMESTAMPTZ[]) AS wake_at) AS w
	WHERE (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance)
	ON CONFLICT (shard, instance) DO UPDATE SET last_event = excluded.last_event, status = excluded.status, name = excluded.name, version = excluded.version, engine = excluded.engine, fresh = excluded.fresh, output = excluded.output, error = excluded.error, custom_status = CASE WHEN i.custom_status_version = excluded.custom_status_version THEN i.custom_status ELSE excluded.custom_status END, custom_status_version = excluded.custom_status_version, history_bytes = excluded.history_bytes, unread = excluded.unread, started_at = excluded.started_at, updated_at = excluded.updated_at, ended_at = excluded.ended_at, wake_at = excluded.wake_at
	WHERE i.incarnation = excluded.incarnation AND i.execution = excluded.execution AND i.last_event = excluded.expected_event
	RETURNING instance),
h AS (INSERT INTO rondo_history (shard, instance, execution, event, last_event, data)
	SELECT shard, instance, execution, event, last_event, data
	FROM (SELECT unnest($22::INT2[]) AS shard, unnest($23::TEXT[]) AS instance, unnest($24::INT8[]) AS execution, unnest($25::INT8[]) AS event, unnest($26::INT8[]) AS last_event, unnest($27::BYTEA[]) AS data) AS r
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE),
o AS (INSERT INTO rondo_outbox (shard, id, messages)
	SELECT $28::INT2, $29::INT8, m.messages FROM (SELECT CASE WHEN (SELECT count(*) FROM won) = $30::INT8 THEN $31::BYTEA
	ELSE (SELECT string_agg(substring($31::BYTEA, r.place::INT4, r.size::INT4), ''::BYTEA ORDER BY r.place)
	FROM unnest($32::TEXT[], $33::INT8[], $34::INT8[]) AS r(instance, place, size)
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE) END AS messages OFFSET 0) m
	WHERE length(m.messages) > 0)
SELECT instance FROM won
----
WITH n AS (INSERT INTO rondo_instances (shard, instance, incarnation, execution, last_event, status, name, version, engine, fresh, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at)
	SELECT shard, instance, incarnation, execution, last_event, status, name, version, engine, fresh, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at
	FROM (SELECT unnest($1::INT2[]) AS shard, unnest($2::TEXT[]) AS instance, unnest($3::TEXT[]) AS incarnation, unnest($4::INT8[]) AS execution, unnest($5::INT8[]) AS last_event, unnest($6::TEXT[]) AS status, unnest($7::TEXT[]) AS name, unnest($8::TEXT[]) AS version, unnest($9::INT8[]) AS engine, unnest($10::BOOL[]) AS fresh, unnest($11::TEXT[]) AS trace, unnest($12::TEXT[]) AS start_message, unnest($13::BYTEA[]) AS output, unnest($14::BYTEA[]) AS error, unnest($15::BYTEA[]) AS custom_status, unnest($16::INT8[]) AS custom_status_version, unnest($17::INT8[]) AS history_bytes, unnest($18::INT8[]) AS unread, unnest($19::TIMESTAMPTZ[]) AS created_at, unnest($20::TIMESTAMPTZ[]) AS started_at, unnest($21::TIMESTAMPTZ[]) AS updated_at, unnest($22::TIMESTAMPTZ[]) AS ended_at, unnest($23::TIMESTAMPTZ[]) AS wake_at) AS w
	WHERE (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance) IS NULL
	RETURNING instance),
k AS (INSERT INTO rondo_instances AS i (shard, instance, incarnation, execution, last_event, expected_event, status, name, version, engine, fresh, output, error, custom_status, custom_status_version, history_bytes, unread, started_at, updated_at, ended_at, wake_at, created_at)
	SELECT shard, instance, incarnation, execution, last_event, expected_event, status, name, version, engine, fresh, output, error, custom_status, custom_status_version, history_bytes, unread, started_at, updated_at, ended_at, wake_at, updated_at
	FROM (SELECT unnest($24::INT2[]) AS shard, unnest($25::TEXT[]) AS instance, unnest($26::TEXT[]) AS incarnation, unnest($27::INT8[]) AS execution, unnest($28::INT8[]) AS last_event, unnest($29::INT8[]) AS expected_event, unnest($30::TEXT[]) AS status, unnest($31::TEXT[]) AS name, unnest($32::TEXT[]) AS version, unnest($33::INT8[]) AS engine, unnest($34::BOOL[]) AS fresh, unnest($35::BYTEA[]) AS output, unnest($36::BYTEA[]) AS error, unnest($37::BYTEA[]) AS custom_status, unnest($38::INT8[]) AS custom_status_version, unnest($39::INT8[]) AS history_bytes, unnest($40::INT8[]) AS unread, unnest($41::TIMESTAMPTZ[]) AS started_at, unnest($42::TIMESTAMPTZ[]) AS updated_at, unnest($43::TIMESTAMPTZ[]) AS ended_at, unnest($44::TIMESTAMPTZ[]) AS wake_at) AS w
	WHERE (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance)
	ON CONFLICT (shard, instance) DO UPDATE SET last_event = excluded.last_event, status = excluded.status, name = excluded.name, version = excluded.version, engine = excluded.engine, fresh = excluded.fresh, output = excluded.output, error = excluded.error, custom_status = CASE WHEN i.custom_status_version = excluded.custom_status_version THEN i.custom_status ELSE excluded.custom_status END, custom_status_version = excluded.custom_status_version, history_bytes = excluded.history_bytes, unread = excluded.unread, started_at = excluded.started_at, updated_at = excluded.updated_at, ended_at = excluded.ended_at, wake_at = excluded.wake_at
	WHERE i.incarnation = excluded.incarnation AND i.execution = excluded.execution AND i.last_event = excluded.expected_event
	RETURNING instance),
won AS (SELECT instance FROM n UNION ALL SELECT instance FROM k),
h AS (INSERT INTO rondo_history (shard, instance, execution, event, last_event, data)
	SELECT shard, instance, execution, event, last_event, data
	FROM (SELECT unnest($45::INT2[]) AS shard, unnest($46::TEXT[]) AS instance, unnest($47::INT8[]) AS execution, unnest($48::INT8[]) AS event, unnest($49::INT8[]) AS last_event, unnest($50::BYTEA[]) AS data) AS r
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE),
o AS (INSERT INTO rondo_outbox (shard, id, messages)
	SELECT $51::INT2, $52::INT8, m.messages FROM (SELECT CASE WHEN (SELECT count(*) FROM won) = $53::INT8 THEN $54::BYTEA
	ELSE (SELECT string_agg(substring($54::BYTEA, r.place::INT4, r.size::INT4), ''::BYTEA ORDER BY r.place)
	FROM unnest($55::TEXT[], $56::INT8[], $57::INT8[]) AS r(instance, place, size)
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE) END AS messages OFFSET 0) m
	WHERE length(m.messages) > 0)
SELECT instance FROM won
----
DELETE FROM rondo_outbox WHERE shard = $1 AND id = $2
----
WITH won AS (WITH p AS (SELECT x.instance, x.incarnation
	FROM (SELECT DISTINCT shard, instance FROM unnest($32::INT2[], $14::TEXT[]) AS u(shard, instance) WHERE shard IS NOT NULL ORDER BY shard, instance) u
	CROSS JOIN LATERAL (SELECT instance, incarnation FROM rondo_instances x WHERE x.shard = u.shard AND x.instance = u.instance AND x.status NOT IN ('deleting', 'deleted') FOR KEY SHARE) x)
	INSERT INTO rondo_instances AS i (shard, instance, incarnation, execution, last_event, expected_incarnation, expected_execution, expected_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at)
	SELECT shard, instance, incarnation, execution, last_event, expected_incarnation, expected_execution, expected_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at
	FROM (SELECT unnest($1::INT2[]) AS shard, unnest($2::TEXT[]) AS instance, unnest($3::TEXT[]) AS incarnation, unnest($4::INT8[]) AS execution, unnest($5::INT8[]) AS last_event, unnest($6::TEXT[]) AS expected_incarnation, unnest($7::INT8[]) AS expected_execution, unnest($8::INT8[]) AS expected_event, unnest($9::TEXT[]) AS status, unnest($10::TEXT[]) AS name, unnest($11::TEXT[]) AS version, unnest($12::INT8[]) AS engine, unnest($13::BOOL[]) AS fresh, unnest($14::TEXT[]) AS parent_instance, unnest($15::TEXT[]) AS parent_incarnation, unnest($16::INT8[]) AS parent_execution, unnest($17::INT8[]) AS parent_event, unnest($18::BYTEA[]) AS attributes, unnest($19::TEXT[]) AS trace, unnest($20::TEXT[]) AS start_message, unnest($21::BYTEA[]) AS output, unnest($22::BYTEA[]) AS error, unnest($23::BYTEA[]) AS custom_status, unnest($24::INT8[]) AS custom_status_version, unnest($25::INT8[]) AS history_bytes, unnest($26::INT8[]) AS unread, unnest($27::TIMESTAMPTZ[]) AS created_at, unnest($28::TIMESTAMPTZ[]) AS started_at, unnest($29::TIMESTAMPTZ[]) AS updated_at, unnest($30::TIMESTAMPTZ[]) AS ended_at, unnest($31::TIMESTAMPTZ[]) AS wake_at, unnest($32::INT2[]) AS parent_shard) AS w
	WHERE (w.expected_execution = 0 OR (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance))
	AND (SELECT count(*) FROM p) >= 0 AND (w.parent_shard IS NULL OR ((w.parent_instance, w.parent_incarnation) IN (SELECT instance, incarnation FROM p)) IS TRUE
		OR ((w.parent_instance IN (SELECT instance FROM p)) IS TRUE AND EXISTS (SELECT 1 FROM rondo_executions x WHERE x.shard = w.parent_shard AND x.instance = w.parent_instance AND x.execution = w.parent_execution AND x.incarnation = w.parent_incarnation)))
	ON CONFLICT (shard, instance) DO UPDATE SET incarnation = excluded.incarnation, execution = excluded.execution, last_event = excluded.last_event, expected_incarnation = excluded.expected_incarnation, expected_execution = excluded.expected_execution, expected_event = excluded.expected_event, status = excluded.status, name = excluded.name, version = excluded.version, engine = excluded.engine, fresh = excluded.fresh, parent_instance = CASE WHEN i.incarnation = excluded.incarnation THEN i.parent_instance ELSE excluded.parent_instance END, parent_incarnation = CASE WHEN i.incarnation = excluded.incarnation THEN i.parent_incarnation ELSE excluded.parent_incarnation END, parent_execution = CASE WHEN i.incarnation = excluded.incarnation THEN i.parent_execution ELSE excluded.parent_execution END, parent_event = CASE WHEN i.incarnation = excluded.incarnation THEN i.parent_event ELSE excluded.parent_event END, attributes = CASE WHEN i.incarnation = excluded.incarnation THEN i.attributes ELSE excluded.attributes END, trace = CASE WHEN i.incarnation = excluded.incarnation THEN i.trace ELSE excluded.trace END, start_message = CASE WHEN i.incarnation = excluded.incarnation THEN i.start_message ELSE excluded.start_message END, output = excluded.output, error = excluded.error, custom_status = CASE WHEN i.incarnation = excluded.incarnation AND i.custom_status_version = excluded.custom_status_version THEN i.custom_status ELSE excluded.custom_status END, custom_status_version = excluded.custom_status_version, history_bytes = excluded.history_bytes, unread = excluded.unread, created_at = CASE WHEN i.incarnation = excluded.incarnation THEN i.created_at ELSE excluded.created_at END, started_at = excluded.started_at, updated_at = excluded.updated_at, ended_at = excluded.ended_at, wake_at = excluded.wake_at
	WHERE i.incarnation = excluded.expected_incarnation AND i.execution = excluded.expected_execution AND i.last_event = excluded.expected_event
	AND NOT (i.status = 'deleted' AND i.start_message IS NOT DISTINCT FROM excluded.start_message)
	RETURNING instance),
h AS (INSERT INTO rondo_history (shard, instance, execution, event, last_event, data)
	SELECT shard, instance, execution, event, last_event, data
	FROM (SELECT unnest($33::INT2[]) AS shard, unnest($34::TEXT[]) AS instance, unnest($35::INT8[]) AS execution, unnest($36::INT8[]) AS event, unnest($37::INT8[]) AS last_event, unnest($38::BYTEA[]) AS data) AS r
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE),
o AS (INSERT INTO rondo_outbox (shard, id, messages)
	SELECT $39::INT2, $40::INT8, m.messages FROM (SELECT CASE WHEN (SELECT count(*) FROM won) = $41::INT8 THEN $42::BYTEA
	ELSE (SELECT string_agg(substring($42::BYTEA, r.place::INT4, r.size::INT4), ''::BYTEA ORDER BY r.place)
	FROM unnest($43::TEXT[], $44::INT8[], $45::INT8[]) AS r(instance, place, size)
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE) END AS messages OFFSET 0) m
	WHERE length(m.messages) > 0)
SELECT instance FROM won
----
WITH won AS (WITH p AS (SELECT x.instance, x.incarnation
	FROM (SELECT DISTINCT shard, instance FROM unnest($32::INT2[], $14::TEXT[]) AS u(shard, instance) WHERE shard IS NOT NULL ORDER BY shard, instance) u
	CROSS JOIN LATERAL (SELECT instance, incarnation FROM rondo_instances x WHERE x.shard = u.shard AND x.instance = u.instance AND x.status NOT IN ('deleting', 'deleted') FOR KEY SHARE) x)
	INSERT INTO rondo_instances AS i (shard, instance, incarnation, execution, last_event, expected_incarnation, expected_execution, expected_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at)
	SELECT shard, instance, incarnation, execution, last_event, expected_incarnation, expected_execution, expected_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at
	FROM (SELECT unnest($1::INT2[]) AS shard, unnest($2::TEXT[]) AS instance, unnest($3::TEXT[]) AS incarnation, unnest($4::INT8[]) AS execution, unnest($5::INT8[]) AS last_event, unnest($6::TEXT[]) AS expected_incarnation, unnest($7::INT8[]) AS expected_execution, unnest($8::INT8[]) AS expected_event, unnest($9::TEXT[]) AS status, unnest($10::TEXT[]) AS name, unnest($11::TEXT[]) AS version, unnest($12::INT8[]) AS engine, unnest($13::BOOL[]) AS fresh, unnest($14::TEXT[]) AS parent_instance, unnest($15::TEXT[]) AS parent_incarnation, unnest($16::INT8[]) AS parent_execution, unnest($17::INT8[]) AS parent_event, unnest($18::BYTEA[]) AS attributes, unnest($19::TEXT[]) AS trace, unnest($20::TEXT[]) AS start_message, unnest($21::BYTEA[]) AS output, unnest($22::BYTEA[]) AS error, unnest($23::BYTEA[]) AS custom_status, unnest($24::INT8[]) AS custom_status_version, unnest($25::INT8[]) AS history_bytes, unnest($26::INT8[]) AS unread, unnest($27::TIMESTAMPTZ[]) AS created_at, unnest($28::TIMESTAMPTZ[]) AS started_at, unnest($29::TIMESTAMPTZ[]) AS updated_at, unnest($30::TIMESTAMPTZ[]) AS ended_at, unnest($31::TIMESTAMPTZ[]) AS wake_at, unnest($32::INT2[]) AS parent_shard) AS w
	WHERE (w.expected_execution = 0 OR (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance))
	AND (SELECT count(*) FROM p) >= 0 AND (w.parent_shard IS NULL OR ((w.parent_instance, w.parent_incarnation) IN (SELECT instance, incarnation FROM p)) IS TRUE
		OR ((w.parent_instance IN (SELECT instance FROM p)) IS TRUE AND EXISTS (SELECT 1 FROM rondo_executions x WHERE x.shard = w.parent_shard AND x.instance = w.parent_instance AND x.execution = w.parent_execution AND x.incarnation = w.parent_incarnation)))
	ON CONFLICT (shard, instance) DO UPDATE SET incarnation = excluded.incarnation, execution = excluded.execution, last_event = excluded.last_event, expected_incarnation = excluded.expected_incarnation, expected_execution = excluded.expected_execution, expected_event = excluded.expected_event, status = excluded.status, name = excluded.name, version = excluded.version, engine = excluded.engine, fresh = excluded.fresh, parent_instance = CASE WHEN i.incarnation = excluded.incarnation THEN i.parent_instance ELSE excluded.parent_instance END, parent_incarnation = CASE WHEN i.incarnation = excluded.incarnation THEN i.parent_incarnation ELSE excluded.parent_incarnation END, parent_execution = CASE WHEN i.incarnation = excluded.incarnation THEN i.parent_execution ELSE excluded.parent_execution END, parent_event = CASE WHEN i.incarnation = excluded.incarnation THEN i.parent_event ELSE excluded.parent_event END, attributes = CASE WHEN i.incarnation = excluded.incarnation THEN i.attributes ELSE excluded.attributes END, trace = CASE WHEN i.incarnation = excluded.incarnation THEN i.trace ELSE excluded.trace END, start_message = CASE WHEN i.incarnation = excluded.incarnation THEN i.start_message ELSE excluded.start_message END, output = excluded.output, error = excluded.error, custom_status = CASE WHEN i.incarnation = excluded.incarnation AND i.custom_status_version = excluded.custom_status_version THEN i.custom_status ELSE excluded.custom_status END, custom_status_version = excluded.custom_status_version, history_bytes = excluded.history_bytes, unread = excluded.unread, created_at = CASE WHEN i.incarnation = excluded.incarnation THEN i.created_at ELSE excluded.created_at END, started_at = excluded.started_at, updated_at = excluded.updated_at, ended_at = excluded.ended_at, wake_at = excluded.wake_at
	WHERE i.incarnation = excluded.expected_incarnation AND i.execution = excluded.expected_execution AND i.last_event = excluded.expected_event
	AND NOT (i.status = 'deleted' AND i.start_message IS NOT DISTINCT FROM excluded.start_message)
	RETURNING instance),
h AS (INSERT INTO rondo_history (shard, instance, execution, event, last_event, data)
	SELECT shard, instance, execution, event, last_event, data
	FROM (SELECT unnest($33::INT2[]) AS shard, unnest($34::TEXT[]) AS instance, unnest($35::INT8[]) AS execution, unnest($36::INT8[]) AS event, unnest($37::INT8[]) AS last_event, unnest($38::BYTEA[]) AS data) AS r
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE),
o AS (INSERT INTO rondo_outbox (shard, id, messages)
	SELECT $39::INT2, $40::INT8, m.messages FROM (SELECT CASE WHEN (SELECT count(*) FROM won) = $41::INT8 THEN $42::BYTEA
	ELSE (SELECT string_agg(substring($42::BYTEA, r.place::INT4, r.size::INT4), ''::BYTEA ORDER BY r.place)
	FROM unnest($43::TEXT[], $44::INT8[], $45::INT8[]) AS r(instance, place, size)
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE) END AS messages OFFSET 0) m
	WHERE length(m.messages) > 0),
f AS (INSERT INTO rondo_executions (shard, instance, execution, incarnation, name, version, engine, status, output, error, started_at, ended_at, last_event, history_bytes)
	SELECT shard, instance, execution, incarnation, name, version, engine, status, output, error, started_at, ended_at, last_event, history_bytes
	FROM (SELECT unnest($46::INT2[]) AS shard, unnest($47::TEXT[]) AS instance, unnest($48::INT8[]) AS execution, unnest($49::TEXT[]) AS incarnation, unnest($50::TEXT[]) AS name, unnest($51::TEXT[]) AS version, unnest($52::INT8[]) AS engine, unnest($53::TEXT[]) AS status, unnest($54::BYTEA[]) AS output, unnest($55::BYTEA[]) AS error, unnest($56::TIMESTAMPTZ[]) AS started_at, unnest($57::TIMESTAMPTZ[]) AS ended_at, unnest($58::INT8[]) AS last_event, unnest($59::INT8[]) AS history_bytes) AS r
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE),
v AS (INSERT INTO rondo_values (shard, instance, key, value, execution, set_at)
	SELECT shard, instance, key, value, execution, set_at
	FROM (SELECT unnest($60::INT2[]) AS shard, unnest($61::TEXT[]) AS instance, unnest($62::TEXT[]) AS key, unnest($63::BYTEA[]) AS value, unnest($64::INT8[]) AS execution, unnest($65::TIMESTAMPTZ[]) AS set_at) AS r
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE
	ON CONFLICT (shard, instance, key) DO UPDATE SET value = excluded.value, execution = excluded.execution, set_at = excluded.set_at),
a AS (INSERT INTO rondo_attributes (shard, instance, name, value, created_at)
	SELECT shard, instance, name, value, created_at
	FROM (SELECT unnest($66::INT2[]) AS shard, unnest($67::TEXT[]) AS instance, unnest($68::TEXT[]) AS name, unnest($69::TEXT[]) AS value, unnest($70::TIMESTAMPTZ[]) AS created_at) AS r
	WHERE (r.instance IN (SELECT instance FROM won)) IS TRUE
	ON CONFLICT DO NOTHING)
SELECT instance FROM won
----
WITH p AS (SELECT x.instance, x.incarnation
	FROM (SELECT DISTINCT shard, instance FROM unnest($32::INT2[], $14::TEXT[]) AS u(shard, instance) WHERE shard IS NOT NULL ORDER BY shard, instance) u
	CROSS JOIN LATERAL (SELECT instance, incarnation FROM rondo_instances x WHERE x.shard = u.shard AND x.instance = u.instance AND x.status NOT IN ('deleting', 'deleted') FOR KEY SHARE) x)
	INSERT INTO rondo_instances AS i (shard, instance, incarnation, execution, last_event, expected_incarnation, expected_execution, expected_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at)
	SELECT shard, instance, incarnation, execution, last_event, expected_incarnation, expected_execution, expected_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at
	FROM (SELECT unnest($1::INT2[]) AS shard, unnest($2::TEXT[]) AS instance, unnest($3::TEXT[]) AS incarnation, unnest($4::INT8[]) AS execution, unnest($5::INT8[]) AS last_event, unnest($6::TEXT[]) AS expected_incarnation, unnest($7::INT8[]) AS expected_execution, unnest($8::INT8[]) AS expected_event, unnest($9::TEXT[]) AS status, unnest($10::TEXT[]) AS name, unnest($11::TEXT[]) AS version, unnest($12::INT8[]) AS engine, unnest($13::BOOL[]) AS fresh, unnest($14::TEXT[]) AS parent_instance, unnest($15::TEXT[]) AS parent_incarnation, unnest($16::INT8[]) AS parent_execution, unnest($17::INT8[]) AS parent_event, unnest($18::BYTEA[]) AS attributes, unnest($19::TEXT[]) AS trace, unnest($20::TEXT[]) AS start_message, unnest($21::BYTEA[]) AS output, unnest($22::BYTEA[]) AS error, unnest($23::BYTEA[]) AS custom_status, unnest($24::INT8[]) AS custom_status_version, unnest($25::INT8[]) AS history_bytes, unnest($26::INT8[]) AS unread, unnest($27::TIMESTAMPTZ[]) AS created_at, unnest($28::TIMESTAMPTZ[]) AS started_at, unnest($29::TIMESTAMPTZ[]) AS updated_at, unnest($30::TIMESTAMPTZ[]) AS ended_at, unnest($31::TIMESTAMPTZ[]) AS wake_at, unnest($32::INT2[]) AS parent_shard) AS w
	WHERE (w.expected_execution = 0 OR (SELECT true FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance))
	AND (SELECT count(*) FROM p) >= 0 AND (w.parent_shard IS NULL OR ((w.parent_instance, w.parent_incarnation) IN (SELECT instance, incarnation FROM p)) IS TRUE
		OR ((w.parent_instance IN (SELECT instance FROM p)) IS TRUE AND EXISTS (SELECT 1 FROM rondo_executions x WHERE x.shard = w.parent_shard AND x.instance = w.parent_instance AND x.execution = w.parent_execution AND x.incarnation = w.parent_incarnation)))
	ON CONFLICT (shard, instance) DO UPDATE SET incarnation = excluded.incarnation, execution = excluded.execution, last_event = excluded.last_event, expected_incarnation = excluded.expected_incarnation, expected_execution = excluded.expected_execution, expected_event = excluded.expected_event, status = excluded.status, name = excluded.name, version = excluded.version, engine = excluded.engine, fresh = excluded.fresh, parent_instance = CASE WHEN i.incarnation = excluded.incarnation THEN i.parent_instance ELSE excluded.parent_instance END, parent_incarnation = CASE WHEN i.incarnation = excluded.incarnation THEN i.parent_incarnation ELSE excluded.parent_incarnation END, parent_execution = CASE WHEN i.incarnation = excluded.incarnation THEN i.parent_execution ELSE excluded.parent_execution END, parent_event = CASE WHEN i.incarnation = excluded.incarnation THEN i.parent_event ELSE excluded.parent_event END, attributes = CASE WHEN i.incarnation = excluded.incarnation THEN i.attributes ELSE excluded.attributes END, trace = CASE WHEN i.incarnation = excluded.incarnation THEN i.trace ELSE excluded.trace END, start_message = CASE WHEN i.incarnation = excluded.incarnation THEN i.start_message ELSE excluded.start_message END, output = excluded.output, error = excluded.error, custom_status = CASE WHEN i.incarnation = excluded.incarnation AND i.custom_status_version = excluded.custom_status_version THEN i.custom_status ELSE excluded.custom_status END, custom_status_version = excluded.custom_status_version, history_bytes = excluded.history_bytes, unread = excluded.unread, created_at = CASE WHEN i.incarnation = excluded.incarnation THEN i.created_at ELSE excluded.created_at END, started_at = excluded.started_at, updated_at = excluded.updated_at, ended_at = excluded.ended_at, wake_at = excluded.wake_at
	WHERE i.incarnation = excluded.expected_incarnation AND i.execution = excluded.expected_execution AND i.last_event = excluded.expected_event
	AND NOT (i.status = 'deleted' AND i.start_message IS NOT DISTINCT FROM excluded.start_message)
	RETURNING instance
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM unnest($1::INT2[], $2::TEXT[]) AS w(shard, instance) CROSS JOIN LATERAL (SELECT shard, instance, incarnation, execution, last_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at FROM rondo_instances x WHERE x.shard = w.shard AND x.instance = w.instance OFFSET 0) i
----
SELECT w.place, h.event, h.last_event, h.data
	FROM unnest($1::INT8[], $2::INT2[], $3::TEXT[], $4::INT8[], $5::INT8[], $6::TEXT[]) AS w(place, shard, instance, execution, last_event, incarnation)
	JOIN rondo_instances i ON i.shard = w.shard AND i.instance = w.instance AND i.incarnation = w.incarnation AND i.execution = w.execution
	CROSS JOIN LATERAL (SELECT event, last_event, data FROM rondo_history x
		WHERE x.shard = w.shard AND x.instance = w.instance AND x.execution = w.execution AND x.event <= w.last_event ORDER BY event OFFSET 0) h
----
SELECT data = $5 FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution = $3 AND event = $4
----
SELECT name, shard, value FROM rondo_marks
----
INSERT INTO rondo_marks AS m (name, shard, value) SELECT $1::TEXT, shard, value FROM unnest($2::INT2[], $3::INT8[]) AS r(shard, value)
	ON CONFLICT (name, shard) DO UPDATE SET value = excluded.value WHERE m.value < excluded.value
----
SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 0 AND id >= $4 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b0
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 1 AND id >= $5 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b1
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 2 AND id >= $6 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b2
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 3 AND id >= $7 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b3
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 4 AND id >= $8 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b4
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 5 AND id >= $9 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b5
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 6 AND id >= $10 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b6
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 7 AND id >= $11 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b7
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 8 AND id >= $12 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b8
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 9 AND id >= $13 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b9
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 10 AND id >= $14 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b10
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 11 AND id >= $15 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b11
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 12 AND id >= $16 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b12
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 13 AND id >= $17 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b13
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 14 AND id >= $18 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b14
UNION ALL SELECT * FROM (SELECT shard, id, length(messages) FROM rondo_outbox WHERE shard = 15 AND id >= $19 AND id < $1 AND (leased_until IS NULL OR leased_until <= $2) ORDER BY id LIMIT $3) b15
ORDER BY id LIMIT $3
----
WITH mine AS (SELECT o.shard, o.id
	FROM unnest($1::INT2[], $2::INT8[]) AS w(shard, id) JOIN rondo_outbox o ON o.shard = w.shard AND o.id = w.id
	WHERE o.leased_until IS NULL OR o.leased_until <= $3::TIMESTAMPTZ FOR UPDATE OF o SKIP LOCKED)
	UPDATE rondo_outbox AS p SET leased_until = $4::TIMESTAMPTZ FROM mine WHERE p.shard = mine.shard AND p.id = mine.id RETURNING p.shard, p.id, p.messages
----
SELECT * FROM (SELECT shard, id FROM rondo_outbox WHERE shard = 0 AND id >= $1 ORDER BY id LIMIT 1) b0
UNION ALL SELECT * FROM (SELECT shard, id FROM rondo_outbox WHERE shard = 1 AND id >= $2 ORDER BY id LIMIT 1) b1
----
DELETE FROM rondo_outbox WHERE shard = $1 AND id = ANY($2)
----
SELECT instance FROM (SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 0 AND wake_at >= $3 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b0
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 1 AND wake_at >= $4 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b1
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 2 AND wake_at >= $5 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b2
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 3 AND wake_at >= $6 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b3
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 4 AND wake_at >= $7 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b4
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 5 AND wake_at >= $8 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b5
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 6 AND wake_at >= $9 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b6
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 7 AND wake_at >= $10 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b7
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 8 AND wake_at >= $11 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b8
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 9 AND wake_at >= $12 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b9
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 10 AND wake_at >= $13 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b10
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 11 AND wake_at >= $14 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b11
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 12 AND wake_at >= $15 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b12
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 13 AND wake_at >= $16 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b13
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 14 AND wake_at >= $17 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b14
UNION ALL SELECT * FROM (SELECT instance, wake_at FROM rondo_instances WHERE shard = 15 AND wake_at >= $18 AND wake_at < $1 ORDER BY wake_at, instance LIMIT $2) b15
ORDER BY wake_at, instance LIMIT $2) d
----
WITH mine AS (SELECT i.shard, i.instance, i.wake_at, w.until
	FROM unnest($1::INT2[], $2::TEXT[], $3::TIMESTAMPTZ[]) AS w(shard, instance, until) JOIN rondo_instances i ON i.shard = w.shard AND i.instance = w.instance
	WHERE (i.wake_at < $4::TIMESTAMPTZ) IS TRUE FOR UPDATE OF i SKIP LOCKED)
	UPDATE rondo_instances AS p SET wake_at = mine.until FROM mine WHERE p.shard = mine.shard AND p.instance = mine.instance
	RETURNING p.instance, p.incarnation, p.execution, p.last_event, p.custom_status_version, mine.wake_at
----
SELECT state FROM rondo_job_queues WHERE queue = $1 FOR UPDATE
----
INSERT INTO rondo_job_queues (queue, state) VALUES ($1, $2) ON CONFLICT (queue) DO NOTHING
----
DELETE FROM rondo_job_queues WHERE queue = $1
----
UPDATE rondo_job_queues SET state = $2, starts = $3 WHERE queue = $1
----
SELECT state, clock_timestamp() FROM rondo_job_queues WHERE queue = $1
----
SELECT queue, state FROM rondo_job_queues WHERE queue > $1 ORDER BY queue LIMIT $2
----
SELECT queue, state FROM rondo_job_queues WHERE starts ORDER BY queue
----
INSERT INTO rondo_jobs (queue, place, rank, position, id, priority, size, pushed_at, ready_at, trace, item) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
----
SELECT ready_at FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT 1
----
SELECT size FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT $4
----
SELECT id, priority, position, attempts, pushed_at, ready_at, trace, item FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT $4
----
DELETE FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 AND position <= (SELECT max(position) FROM (
		SELECT position FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT $4) AS first) RETURNING id, priority, position, attempts, pushed_at, ready_at, trace, item
----
UPDATE rondo_jobs SET place = 2, rank = $5, attempts = attempts + 1 WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 AND position <= (SELECT max(position) FROM (
		SELECT position FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT $4) AS first) RETURNING id, priority, position, attempts, pushed_at, ready_at, trace, item
----
DELETE FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position BETWEEN $3 AND $4
----
UPDATE rondo_jobs SET place = 2, rank = r.lock, attempts = attempts + 1 FROM (SELECT CAST($5 AS INT8) AS low, CAST($6 AS INT8) AS high, CAST($7 AS INT8) AS lock UNION ALL SELECT CAST($8 AS INT8) AS low, CAST($9 AS INT8) AS high, CAST($10 AS INT8) AS lock) AS r
		WHERE queue = $1 AND place = 0 AND rank = $2 AND position BETWEEN $3 AND $4 AND position BETWEEN r.low AND r.high
----
DELETE FROM rondo_jobs WHERE queue = $1 AND place = 2 AND rank IN ($2, $3)
----
UPDATE rondo_jobs SET rank = 2 WHERE queue = $1 AND place = 2 AND rank = 1 AND id IN ($2, $3)
----
UPDATE rondo_jobs SET attempts = attempts - CAST($8 AS INT8),
		place = CASE WHEN attempts >= CAST($5 AS INT8) AND CAST($5 AS INT8) > 0 THEN 3 ELSE CAST($3 AS INT8) END,
		rank = CASE WHEN attempts >= CAST($5 AS INT8) AND CAST($5 AS INT8) > 0 THEN CAST($6 AS INT8) WHEN CAST($3 AS INT8) = 1 THEN CAST($4 AS INT8) ELSE priority END,
		reason = CASE WHEN CAST($8 AS INT8) > 0 OR attempts >= CAST($5 AS INT8) AND CAST($5 AS INT8) > 0 THEN CAST($7 AS TEXT) ELSE reason END
		WHERE queue = $1 AND place = 2 AND rank = $2 RETURNING place, priority, position
----
SELECT id, rank, position, priority, attempts > 0 OR reason IS NOT NULL FROM rondo_jobs
		WHERE queue = $1 AND place = 1 AND (rank, position) > (-1, -1) ORDER BY rank, position LIMIT $2
----
UPDATE rondo_jobs SET place = 0, rank = priority, position = $4, ready_at = CASE WHEN attempts = 0 AND reason IS NULL THEN $5 ELSE ready_at END
		WHERE queue = $1 AND place = 1 AND rank = $2 AND position = $3
----
SELECT rank, reason, id, priority, position, attempts, pushed_at, ready_at, trace, item FROM rondo_jobs
		WHERE queue = $1 AND place = 3 AND (rank, position) > ($2, $3) ORDER BY rank, position LIMIT $4
----
SELECT rank, position, priority FROM rondo_jobs WHERE queue = $1 AND place = 3 AND (rank, position) > (-1, -1) ORDER BY rank, position LIMIT $2
----
SELECT rank, position, priority FROM rondo_jobs WHERE queue = $1 AND place = 3 AND rank = $2 AND position = $3
----
UPDATE rondo_jobs SET place = 0, rank = priority, position = $4, attempts = 0, reason = NULL, ready_at = $5
		WHERE queue = $1 AND place = 3 AND rank = $2 AND position = $3
----
DELETE FROM rondo_jobs WHERE queue = $1 AND (place, rank, position) IN (
		SELECT place, rank, position FROM rondo_jobs WHERE queue = $1 AND place >= $2 ORDER BY place, rank, position LIMIT $3) RETURNING place, priority
----
INSERT INTO rondo_job_locks (queue, lock_id, number, items, created_at, expires_at, returned) VALUES ($1, $2, $3, $4, $5, $6, FALSE)
----
SELECT lock_id, number, items, created_at, expires_at, returned FROM rondo_job_locks WHERE queue = $1 AND lock_id IN ($2, $3)
----
UPDATE rondo_job_locks SET expires_at = $3, returned = $4 WHERE queue = $1 AND lock_id = $2
----
DELETE FROM rondo_job_locks WHERE queue = $1 AND lock_id IN ($2, $3)
----
SELECT lock_id, number, items, created_at, expires_at, returned FROM rondo_job_locks WHERE queue = $1 AND returned = FALSE ORDER BY expires_at LIMIT $2
----
SELECT lock_id, number, items, created_at, expires_at, returned FROM rondo_job_locks WHERE queue = $1 AND returned = TRUE ORDER BY expires_at LIMIT $2
----
SELECT key, digest, items, expires_at FROM rondo_job_keys WHERE queue = $1 AND key IN ($2, $3)
----
INSERT INTO rondo_job_keys (queue, key, digest, items, expires_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (queue, key) DO UPDATE SET digest = excluded.digest, items = excluded.items, expires_at = excluded.expires_at
----
SELECT key, expires_at FROM rondo_job_keys WHERE queue = $1 ORDER BY expires_at LIMIT $2
----
DELETE FROM rondo_job_keys WHERE queue = $1 AND key = $2
----
SELECT count(*), max(lock_id) FROM (SELECT lock_id FROM rondo_job_locks WHERE queue = $1 ORDER BY lock_id LIMIT $2) AS first
----
DELETE FROM rondo_job_locks WHERE queue = $1 AND lock_id <= $2
----
SELECT count(*), max(key) FROM (SELECT key FROM rondo_job_keys WHERE queue = $1 AND key > $2 ORDER BY key LIMIT $3) AS first
----
DELETE FROM rondo_job_keys WHERE queue = $1 AND key > $2 AND key <= $3
----
DELETE FROM rondo_job_locks WHERE queue = $1
----
DELETE FROM rondo_job_keys WHERE queue = $1
----
DELETE FROM rondo_values WHERE shard = $1 AND instance = $2 AND key = $3
----
INSERT INTO rondo_history (shard, instance, execution, event, last_event, data)
	SELECT shard, instance, execution, event, last_event, data
	FROM (SELECT unnest($1::INT2[]) AS shard, unnest($2::TEXT[]) AS instance, unnest($3::INT8[]) AS execution, unnest($4::INT8[]) AS event, unnest($5::INT8[]) AS last_event, unnest($6::BYTEA[]) AS data) AS r
----
INSERT INTO rondo_values (shard, instance, key, value, execution, set_at)
	SELECT shard, instance, key, value, execution, set_at
	FROM (SELECT unnest($1::INT2[]) AS shard, unnest($2::TEXT[]) AS instance, unnest($3::TEXT[]) AS key, unnest($4::BYTEA[]) AS value, unnest($5::INT8[]) AS execution, unnest($6::TIMESTAMPTZ[]) AS set_at) AS r WHERE true
	ON CONFLICT (shard, instance, key) DO UPDATE SET value = excluded.value, execution = excluded.execution, set_at = excluded.set_at
----
INSERT INTO rondo_executions (shard, instance, execution, incarnation, name, version, engine, status, output, error, started_at, ended_at, last_event, history_bytes)
	SELECT shard, instance, execution, incarnation, name, version, engine, status, output, error, started_at, ended_at, last_event, history_bytes
	FROM (SELECT unnest($1::INT2[]) AS shard, unnest($2::TEXT[]) AS instance, unnest($3::INT8[]) AS execution, unnest($4::TEXT[]) AS incarnation, unnest($5::TEXT[]) AS name, unnest($6::TEXT[]) AS version, unnest($7::INT8[]) AS engine, unnest($8::TEXT[]) AS status, unnest($9::BYTEA[]) AS output, unnest($10::BYTEA[]) AS error, unnest($11::TIMESTAMPTZ[]) AS started_at, unnest($12::TIMESTAMPTZ[]) AS ended_at, unnest($13::INT8[]) AS last_event, unnest($14::INT8[]) AS history_bytes) AS r
----
INSERT INTO rondo_attributes (shard, instance, name, value, created_at)
	SELECT shard, instance, name, value, created_at
	FROM (SELECT unnest($1::INT2[]) AS shard, unnest($2::TEXT[]) AS instance, unnest($3::TEXT[]) AS name, unnest($4::TEXT[]) AS value, unnest($5::TIMESTAMPTZ[]) AS created_at) AS r WHERE true
	ON CONFLICT DO NOTHING
----
INSERT INTO rondo_outbox (shard, id, messages) VALUES ($1, $2, $3)
----
DELETE FROM rondo_values WHERE shard = $1 AND instance = $2
----
SELECT execution FROM rondo_executions WHERE shard = $1 AND instance = $2 AND execution = $3 AND incarnation = $4
----
SELECT count(*) FROM (SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 0 AND id >= $2 LIMIT $1) b0
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 1 AND id >= $3 LIMIT $1) b1
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 2 AND id >= $4 LIMIT $1) b2
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 3 AND id >= $5 LIMIT $1) b3
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 4 AND id >= $6 LIMIT $1) b4
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 5 AND id >= $7 LIMIT $1) b5
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 6 AND id >= $8 LIMIT $1) b6
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 7 AND id >= $9 LIMIT $1) b7
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 8 AND id >= $10 LIMIT $1) b8
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 9 AND id >= $11 LIMIT $1) b9
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 10 AND id >= $12 LIMIT $1) b10
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 11 AND id >= $13 LIMIT $1) b11
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 12 AND id >= $14 LIMIT $1) b12
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 13 AND id >= $15 LIMIT $1) b13
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 14 AND id >= $16 LIMIT $1) b14
UNION ALL SELECT * FROM (SELECT 1 FROM rondo_outbox WHERE shard = 15 AND id >= $17 LIMIT $1) b15
LIMIT $1) o
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b1
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b2
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b3
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b4
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b5
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b6
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b7
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b8
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b9
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b10
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b11
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b12
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b13
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 0 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 1 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b1
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 0 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b2
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 1 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b3
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 0 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b4
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 1 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b5
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 0 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b6
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 1 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b7
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 0 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b8
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 1 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b9
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 0 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b10
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 1 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b11
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 0 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b12
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 1 AND (i.created_at, i.instance) < ($1, $2) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b13
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 1 AND true
LIMIT 100) c
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 0 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 1 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b1
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 0 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b2
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 1 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b3
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 0 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6 AND (i.created_at, i.instance) < ($7, $8) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 1 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6 AND (i.created_at, i.instance) < ($7, $8) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b1
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 0 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6 AND (i.created_at, i.instance) < ($7, $8) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b2
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 1 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6 AND (i.created_at, i.instance) < ($7, $8) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b3
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 0 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 1 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 0 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 1 AND i.created_at >= $2 AND i.created_at < $3 AND i.version = $4 AND i.parent_instance IS NULL AND i.ended_at >= $5 AND i.ended_at < $6
LIMIT 100) c
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'running' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'running' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b1
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'suspended' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b2
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'suspended' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b3
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'halted' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b4
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'halted' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b5
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b6
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b7
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b8
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b9
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'cancelled' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b10
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'cancelled' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b11
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'terminated' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b12
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'terminated' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b13
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'running' AND i.shard = 0 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'running' AND i.shard = 1 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b1
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'suspended' AND i.shard = 0 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b2
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'suspended' AND i.shard = 1 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b3
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'halted' AND i.shard = 0 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b4
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'halted' AND i.shard = 1 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b5
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 0 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b6
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 1 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b7
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 0 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b8
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 1 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b9
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'cancelled' AND i.shard = 0 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b10
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'cancelled' AND i.shard = 1 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b11
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'terminated' AND i.shard = 0 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b12
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.name = $1 AND i.status = 'terminated' AND i.shard = 1 AND (i.created_at, i.instance) < ($2, $3) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b13
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'running' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'running' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'suspended' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'suspended' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'halted' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'halted' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'completed' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'failed' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'cancelled' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'cancelled' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'terminated' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.name = $1 AND i.status = 'terminated' AND i.shard = 1 AND true
LIMIT 100) c
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE true AND i.created_at >= $1 AND i.created_at < $2 AND (i.status IN ($3, $4)) IS TRUE AND (i.name = $5) IS TRUE AND i.version = $6 AND (i.shard, i.instance) IN (VALUES (7, CAST($7 AS TEXT)), (4, CAST($8 AS TEXT))) AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE true AND i.created_at >= $1 AND i.created_at < $2 AND (i.status IN ($3, $4)) IS TRUE AND (i.name = $5) IS TRUE AND i.version = $6 AND (i.shard, i.instance) IN (VALUES (7, CAST($7 AS TEXT)), (4, CAST($8 AS TEXT))) AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (i.created_at, i.instance) < ($11, $12) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE true AND i.created_at >= $1 AND i.created_at < $2 AND (i.status IN ($3, $4)) IS TRUE AND (i.name = $5) IS TRUE AND i.version = $6 AND (i.shard, i.instance) IN (VALUES (7, CAST($7 AS TEXT)), (4, CAST($8 AS TEXT))) AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10
LIMIT 100) c
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.shard = 0 AND i.instance >= $1 AND i.instance < $2 AND i.created_at >= $3 AND i.created_at < $4 AND i.status IN ($5, $6) AND i.name = $7 AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 ORDER BY i.instance LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.shard = 1 AND i.instance >= $1 AND i.instance < $2 AND i.created_at >= $3 AND i.created_at < $4 AND i.status IN ($5, $6) AND i.name = $7 AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 ORDER BY i.instance LIMIT 2) b1
ORDER BY instance LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.instance
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.shard = 0 AND i.instance >= $1 AND i.instance < $2 AND i.created_at >= $3 AND i.created_at < $4 AND i.status IN ($5, $6) AND i.name = $7 AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND i.instance > $11 ORDER BY i.instance LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.shard = 1 AND i.instance >= $1 AND i.instance < $2 AND i.created_at >= $3 AND i.created_at < $4 AND i.status IN ($5, $6) AND i.name = $7 AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND i.instance > $11 ORDER BY i.instance LIMIT 2) b1
ORDER BY instance LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.instance
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE i.shard = 0 AND i.instance >= $1 AND i.instance < $2 AND i.created_at >= $3 AND i.created_at < $4 AND i.status IN ($5, $6) AND i.name = $7 AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.shard = 1 AND i.instance >= $1 AND i.instance < $2 AND i.created_at >= $3 AND i.created_at < $4 AND i.status IN ($5, $6) AND i.name = $7 AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10
LIMIT 100) c
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.parent_instance = $1 AND i.created_at >= $2 AND i.created_at < $3 AND i.status IN ($4, $5) AND i.name = $6 AND i.version = $7 AND i.ended_at >= $8 AND i.ended_at < $9 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.parent_instance = $1 AND i.created_at >= $2 AND i.created_at < $3 AND i.status IN ($4, $5) AND i.name = $6 AND i.version = $7 AND i.ended_at >= $8 AND i.ended_at < $9 AND (i.created_at, i.instance) < ($10, $11) ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE i.parent_instance = $1 AND i.created_at >= $2 AND i.created_at < $3 AND i.status IN ($4, $5) AND i.name = $6 AND i.version = $7 AND i.ended_at >= $8 AND i.ended_at < $9
LIMIT 100) c
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT a.shard, a.instance, a.created_at FROM rondo_attributes a WHERE a.name = $1 AND a.value = $2 AND a.shard = 0 AND a.created_at >= $3 AND a.created_at < $4 AND (SELECT true FROM rondo_instances i WHERE i.shard = a.shard AND i.instance = a.instance AND i.created_at = a.created_at AND (i.status IN ($5, $6)) IS TRUE AND (i.name = $7) IS TRUE AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (SELECT true FROM rondo_attributes x WHERE x.name = $11 AND x.value = $12 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance)) ORDER BY a.created_at DESC, a.instance DESC LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT a.shard, a.instance, a.created_at FROM rondo_attributes a WHERE a.name = $1 AND a.value = $2 AND a.shard = 1 AND a.created_at >= $3 AND a.created_at < $4 AND (SELECT true FROM rondo_instances i WHERE i.shard = a.shard AND i.instance = a.instance AND i.created_at = a.created_at AND (i.status IN ($5, $6)) IS TRUE AND (i.name = $7) IS TRUE AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (SELECT true FROM rondo_attributes x WHERE x.name = $11 AND x.value = $12 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance)) ORDER BY a.created_at DESC, a.instance DESC LIMIT 2) b1
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT a.shard, a.instance, a.created_at FROM rondo_attributes a WHERE a.name = $1 AND a.value = $2 AND a.shard = 0 AND a.created_at >= $3 AND a.created_at < $4 AND (SELECT true FROM rondo_instances i WHERE i.shard = a.shard AND i.instance = a.instance AND i.created_at = a.created_at AND (i.status IN ($5, $6)) IS TRUE AND (i.name = $7) IS TRUE AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (SELECT true FROM rondo_attributes x WHERE x.name = $11 AND x.value = $12 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance)) AND (a.created_at, a.instance) < ($13, $14) ORDER BY a.created_at DESC, a.instance DESC LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT a.shard, a.instance, a.created_at FROM rondo_attributes a WHERE a.name = $1 AND a.value = $2 AND a.shard = 1 AND a.created_at >= $3 AND a.created_at < $4 AND (SELECT true FROM rondo_instances i WHERE i.shard = a.shard AND i.instance = a.instance AND i.created_at = a.created_at AND (i.status IN ($5, $6)) IS TRUE AND (i.name = $7) IS TRUE AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (SELECT true FROM rondo_attributes x WHERE x.name = $11 AND x.value = $12 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance)) AND (a.created_at, a.instance) < ($13, $14) ORDER BY a.created_at DESC, a.instance DESC LIMIT 2) b1
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT count(*) FROM (SELECT 1 FROM rondo_attributes a WHERE a.name = $1 AND a.value = $2 AND a.shard = 0 AND a.created_at >= $3 AND a.created_at < $4 AND (SELECT true FROM rondo_instances i WHERE i.shard = a.shard AND i.instance = a.instance AND i.created_at = a.created_at AND (i.status IN ($5, $6)) IS TRUE AND (i.name = $7) IS TRUE AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (SELECT true FROM rondo_attributes x WHERE x.name = $11 AND x.value = $12 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance))
UNION ALL SELECT 1 FROM rondo_attributes a WHERE a.name = $1 AND a.value = $2 AND a.shard = 1 AND a.created_at >= $3 AND a.created_at < $4 AND (SELECT true FROM rondo_instances i WHERE i.shard = a.shard AND i.instance = a.instance AND i.created_at = a.created_at AND (i.status IN ($5, $6)) IS TRUE AND (i.name = $7) IS TRUE AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (SELECT true FROM rondo_attributes x WHERE x.name = $11 AND x.value = $12 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance))
LIMIT 100) c
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.shard = 0 AND i.instance >= $1 AND i.instance < $2 AND i.created_at >= $3 AND i.created_at < $4 AND i.status IN ($5, $6) AND i.name = $7 AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (SELECT true FROM rondo_attributes x WHERE x.name = $11 AND x.value = $12 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance) AND (SELECT true FROM rondo_attributes x WHERE x.name = $13 AND x.value = $14 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance) ORDER BY i.instance LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.shard = 1 AND i.instance >= $1 AND i.instance < $2 AND i.created_at >= $3 AND i.created_at < $4 AND i.status IN ($5, $6) AND i.name = $7 AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (SELECT true FROM rondo_attributes x WHERE x.name = $11 AND x.value = $12 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance) AND (SELECT true FROM rondo_attributes x WHERE x.name = $13 AND x.value = $14 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance) ORDER BY i.instance LIMIT 2) b1
ORDER BY instance LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.instance
----
SELECT i.shard, i.instance, i.incarnation, i.execution, i.last_event, i.status, i.name, i.version, i.engine, i.fresh, i.parent_instance, i.parent_incarnation, i.parent_execution, i.parent_event, i.attributes, i.trace, i.start_message, i.output, i.error, i.custom_status, i.custom_status_version, i.history_bytes, i.unread, i.created_at, i.started_at, i.updated_at, i.ended_at, i.wake_at FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.shard = 0 AND i.instance >= $1 AND i.instance < $2 AND i.created_at >= $3 AND i.created_at < $4 AND i.status IN ($5, $6) AND i.name = $7 AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (SELECT true FROM rondo_attributes x WHERE x.name = $11 AND x.value = $12 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance) AND (SELECT true FROM rondo_attributes x WHERE x.name = $13 AND x.value = $14 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance) AND i.instance > $15 ORDER BY i.instance LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.shard = 1 AND i.instance >= $1 AND i.instance < $2 AND i.created_at >= $3 AND i.created_at < $4 AND i.status IN ($5, $6) AND i.name = $7 AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (SELECT true FROM rondo_attributes x WHERE x.name = $11 AND x.value = $12 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance) AND (SELECT true FROM rondo_attributes x WHERE x.name = $13 AND x.value = $14 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance) AND i.instance > $15 ORDER BY i.instance LIMIT 2) b1
ORDER BY instance LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.instance
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE i.shard = 0 AND i.instance >= $1 AND i.instance < $2 AND i.created_at >= $3 AND i.created_at < $4 AND i.status IN ($5, $6) AND i.name = $7 AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (SELECT true FROM rondo_attributes x WHERE x.name = $11 AND x.value = $12 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance) AND (SELECT true FROM rondo_attributes x WHERE x.name = $13 AND x.value = $14 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance)
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.shard = 1 AND i.instance >= $1 AND i.instance < $2 AND i.created_at >= $3 AND i.created_at < $4 AND i.status IN ($5, $6) AND i.name = $7 AND i.version = $8 AND i.parent_instance IS NULL AND i.ended_at >= $9 AND i.ended_at < $10 AND (SELECT true FROM rondo_attributes x WHERE x.name = $11 AND x.value = $12 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance) AND (SELECT true FROM rondo_attributes x WHERE x.name = $13 AND x.value = $14 AND x.shard = i.shard AND x.created_at = i.created_at AND x.instance = i.instance)
LIMIT 100) c
----
SELECT count(*) FROM (SELECT 1 FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 1 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 0 AND true
UNION ALL SELECT 1 FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 1 AND true) c
----
SELECT shard, instance, incarnation, execution, last_event, status, name, version, engine, fresh, parent_instance, parent_incarnation, parent_execution, parent_event, attributes, trace, start_message, output, error, custom_status, custom_status_version, history_bytes, unread, created_at, started_at, updated_at, ended_at, wake_at FROM rondo_instances WHERE shard = $1 AND instance = $2
----
SELECT * FROM (SELECT execution, incarnation, name, version, engine, status, output, error, started_at, ended_at, last_event, history_bytes FROM rondo_executions WHERE shard = $1 AND instance = $2 AND execution > $3 AND status NOT IN ('deleting', 'deleted') ORDER BY execution LIMIT 10) f UNION ALL SELECT execution, incarnation, name, version, engine, status, output, error, started_at, ended_at, last_event, history_bytes FROM rondo_instances WHERE shard = $1 AND instance = $2 AND execution > $3 AND status NOT IN ('deleting', 'deleted') ORDER BY execution LIMIT 10
----
SELECT incarnation, last_event FROM rondo_executions WHERE shard = $1 AND instance = $2 AND execution = $3 AND status NOT IN ('deleting', 'deleted')
----
SELECT * FROM (SELECT event, last_event, data FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution = $3 AND event <= $4 ORDER BY event DESC LIMIT 1) f UNION ALL SELECT event, last_event, data FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution = $3 AND event > $4 AND event <= $5 ORDER BY event
----
SELECT CAST(coalesce(length(i.output), 0) + coalesce(length(i.error), 0) + coalesce(length(i.custom_status), 0) + coalesce(length(i.attributes), 0) AS INT8) FROM (SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b0
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'running' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b1
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b2
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'suspended' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b3
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b4
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'halted' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b5
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b6
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'completed' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b7
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b8
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'failed' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b9
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b10
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'cancelled' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b11
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 0 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b12
UNION ALL SELECT * FROM (SELECT i.shard, i.instance, i.created_at FROM rondo_instances i WHERE i.status = 'terminated' AND i.shard = 1 ORDER BY i.created_at DESC, i.instance DESC LIMIT 2) b13
ORDER BY created_at DESC, instance DESC LIMIT 2) k JOIN rondo_instances i ON i.shard = k.shard AND i.instance = k.instance
ORDER BY i.created_at DESC, i.instance DESC
----
SELECT * FROM (SELECT execution, CAST(coalesce(length(output), 0) + coalesce(length(error), 0) AS INT8) AS size FROM rondo_executions WHERE shard = $1 AND instance = $2 AND execution > $3 AND status NOT IN ('deleting', 'deleted') ORDER BY execution LIMIT 10) f UNION ALL SELECT execution, CAST(coalesce(length(output), 0) + coalesce(length(error), 0) AS INT8) AS size FROM rondo_instances WHERE shard = $1 AND instance = $2 AND execution > $3 AND status NOT IN ('deleting', 'deleted') ORDER BY execution LIMIT 10
----
SELECT * FROM (SELECT event, last_event, CAST(length(data) AS INT8) AS size FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution = $3 AND event <= $4 ORDER BY event DESC LIMIT 1) f UNION ALL SELECT event, last_event, CAST(length(data) AS INT8) AS size FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution = $3 AND event > $4 AND event <= $5 ORDER BY event
----
SELECT count(*), CAST(coalesce(sum(length(value)), 0) AS INT8) FROM rondo_values WHERE shard = $1 AND instance = $2
----
SELECT v.key, v.value, v.execution, v.set_at
	FROM rondo_instances i JOIN rondo_values v ON v.shard = i.shard AND v.instance = i.instance
	WHERE i.shard = $1 AND i.instance = $2 AND i.status NOT IN ('deleting', 'deleted')
----
SELECT v.key, v.value, v.execution, v.set_at
	FROM rondo_instances i JOIN rondo_values v ON v.shard = i.shard AND v.instance = i.instance
	WHERE i.shard = $1 AND i.instance = $2 AND i.status NOT IN ('deleting', 'deleted') AND v.key = $3
----
SELECT CASE WHEN custom_status_version <> $3 THEN custom_status END, custom_status_version FROM rondo_instances WHERE shard = $1 AND instance = $2 AND status NOT IN ('deleting', 'deleted')
----
SELECT i.instance, i.parent_instance, i.name, i.status, i.created_at, i.ended_at, i.last_event, i.attributes FROM rondo_instances i WHERE (i.shard, i.instance) IN (VALUES (7, CAST($1 AS TEXT))) AND i.status NOT IN ('deleting', 'deleted') ORDER BY i.shard, i.instance
----
SELECT i.instance, i.parent_instance, i.name, i.status, i.created_at, i.ended_at, i.last_event, i.attributes FROM rondo_instances i WHERE i.parent_instance IN ($1) AND i.status NOT IN ('deleting', 'deleted') ORDER BY i.shard, i.instance
----
SELECT status, count(*), CAST(sum(last_event) AS INT8) FROM rondo_instances GROUP BY status
----
SELECT count(*), CAST(coalesce(sum(last_event), 0) AS INT8), (SELECT count(*) FROM rondo_outbox) FROM rondo_executions WHERE status NOT IN ('deleting', 'deleted') AND (shard, instance) NOT IN (SELECT shard, instance FROM rondo_instances WHERE status = 'deleting')
----
UPDATE rondo_executions SET status = 'deleting' WHERE (shard, instance, execution) IN (SELECT shard, instance, execution FROM rondo_executions WHERE shard = $1 AND instance = $2 AND status NOT IN ('deleting', 'deleted') AND execution <= (SELECT execution FROM rondo_instances WHERE shard = $1 AND instance = $2) - 2 AND ended_at < $3 ORDER BY shard, instance, execution LIMIT 1000)
----
DELETE FROM rondo_history WHERE (shard, instance, execution, event) IN (SELECT shard, instance, execution, event FROM (SELECT * FROM (SELECT shard, instance, execution, event FROM rondo_history WHERE shard = $1 AND instance = $2 AND execution IN (SELECT execution FROM rondo_executions WHERE shard = $1 AND instance = $2 AND status = 'deleting') ORDER BY shard, instance, execution, event LIMIT 300) b0) k LIMIT 300) RETURNING last_event - event + 1
----
DELETE FROM rondo_executions WHERE shard = $1 AND instance = $2 AND status = 'deleting'
----
SELECT i.instance FROM rondo_instances i WHERE (i.shard, i.instance) IN (VALUES (7, CAST($1 AS TEXT))) AND i.status NOT IN ('deleting', 'deleted') ORDER BY i.shard, i.instance FOR UPDATE
----
DELETE FROM rondo_attributes WHERE (name, value) IN (VALUES (CAST($1 AS TEXT), CAST($2 AS TEXT))) AND shard = 7 AND created_at = $3 AND instance = $4
----
UPDATE rondo_instances SET status = 'deleting', incarnation = '', execution = 0, last_event = -1,
			name = '', version = '', engine = 0, fresh = false,
			parent_instance = NULL, parent_incarnation = NULL, parent_execution = NULL, parent_event = NULL, attributes = NULL, trace = NULL,
			output = NULL, error = NULL, custom_status = NULL, custom_status_version = 0, history_bytes = 0, unread = 0,
			wake_at = NULL, ended_at = NULL, created_at = CASE WHEN ended_at < $2 AND updated_at < $2 THEN coalesce($3, updated_at) ELSE $1 END, updated_at = $1 WHERE (shard, instance) IN (VALUES (7, CAST($4 AS TEXT)))
----
SELECT i.instance FROM rondo_instances i WHERE (i.shard, i.instance) IN (VALUES (7, CAST($1 AS TEXT))) AND (i.status = 'deleting') IS TRUE ORDER BY i.shard, i.instance FOR UPDATE
----
DELETE FROM rondo_history WHERE (shard, instance, execution, event) IN (SELECT shard, instance, execution, event FROM (SELECT * FROM (SELECT shard, instance, execution, event FROM rondo_history WHERE shard = 7 AND instance = $1 ORDER BY shard, instance, execution, event LIMIT 300) b0) k LIMIT 300) RETURNING last_event - event + 1
----
DELETE FROM rondo_executions WHERE (shard, instance, execution) IN (SELECT shard, instance, execution FROM (SELECT * FROM (SELECT shard, instance, execution FROM rondo_executions WHERE shard = 7 AND instance = $1 ORDER BY shard, instance, execution LIMIT 1000) b0) k LIMIT 1000)
----
DELETE FROM rondo_values WHERE (shard, instance) IN (VALUES (7, CAST($1 AS TEXT)))
----
UPDATE rondo_instances SET status = 'deleted', last_event = 0 WHERE (shard, instance) IN (VALUES (7, CAST($1 AS TEXT)))
----
SELECT * FROM (SELECT * FROM (SELECT i.instance FROM rondo_instances i WHERE i.status = 'deleting' AND i.shard = 0 ORDER BY i.created_at LIMIT 100) b0
UNION ALL SELECT * FROM (SELECT i.instance FROM rondo_instances i WHERE i.status = 'deleting' AND i.shard = 1 ORDER BY i.created_at LIMIT 100) b1) b LIMIT 100
----
SELECT * FROM (SELECT * FROM (SELECT i.instance FROM rondo_instances i WHERE i.status = 'deleted' AND i.created_at < $1 AND i.shard = 0 ORDER BY i.created_at LIMIT 500) b0
UNION ALL SELECT * FROM (SELECT i.instance FROM rondo_instances i WHERE i.status = 'deleted' AND i.created_at < $1 AND i.shard = 1 ORDER BY i.created_at LIMIT 500) b1) b LIMIT 500
----
SELECT i.instance FROM rondo_instances i WHERE (i.shard, i.instance) IN (VALUES (7, CAST($1 AS TEXT))) AND (i.status = 'deleted') IS TRUE ORDER BY i.shard, i.instance FOR UPDATE
----
DELETE FROM rondo_instances WHERE (shard, instance) IN (VALUES (7, CAST($1 AS TEXT))) AND created_at < $2
----
SELECT max(updated_at) FROM rondo_instances WHERE shard = $1 AND updated_at < $2 AND status NOT IN ('deleting', 'deleted')
----
SELECT system, beats, beat_at FROM rondo_system WHERE id = 1
----
UPDATE rondo_system SET system = CAST($1 AS TEXT), beats = $2, beat_at = clock_timestamp() WHERE id = 1 AND system = CAST($3 AS TEXT) AND beats = $4
----
INSERT INTO rondo_schedules (id, version, token, wake_at, changed_at, data) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING
----
SELECT version, token FROM rondo_schedules WHERE id = $1
----
UPDATE rondo_schedules SET version = version + 1, token = $3, wake_at = $4, changed_at = $5, data = $6 WHERE id = $1 AND version = $2
----
SELECT id FROM rondo_outbox WHERE shard = $1 AND id = $2 AND messages = $3
----
DELETE FROM rondo_schedules WHERE id = $1 AND version = $2
----
SELECT id, version, wake_at, changed_at, data FROM rondo_schedules WHERE id = $1
----
SELECT wake_at, CAST(length(data) AS INT8) FROM rondo_schedules WHERE wake_at >= $1 AND wake_at < $2 ORDER BY wake_at, id LIMIT $3
----
SELECT id, version, wake_at, changed_at, data FROM rondo_schedules WHERE wake_at >= $1 AND wake_at < $2 ORDER BY wake_at, id LIMIT $3
----
SELECT id, version, wake_at, changed_at, data FROM rondo_schedules WHERE id > $1 ORDER BY id LIMIT $2
----
SELECT CAST(length(data) AS INT8) FROM rondo_schedules WHERE id > $1 ORDER BY id LIMIT $2
----
SELECT id, version, wake_at, changed_at, data FROM rondo_schedules WHERE id > $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4
----
SELECT CAST(length(data) AS INT8) FROM rondo_schedules WHERE id > $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4
