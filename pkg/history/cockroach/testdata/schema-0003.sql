-- Version 3 of the tables on PostgreSQL, and what historytest.Fill put into them. This file never changes.

CREATE TABLE IF NOT EXISTS rondo_schema (
	id         INT8 PRIMARY KEY,
	version    INT8 NOT NULL,
	holder     TEXT,
	held_until TIMESTAMPTZ
);

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
) WITH (fillfactor = 80);

CREATE INDEX IF NOT EXISTS rondo_instances_by_status ON rondo_instances (status, shard, created_at, instance);

CREATE INDEX IF NOT EXISTS rondo_instances_by_name ON rondo_instances (name, status, shard, created_at, instance);

CREATE INDEX IF NOT EXISTS rondo_instances_by_parent ON rondo_instances (parent_instance, created_at, instance) WHERE parent_instance IS NOT NULL;

CREATE INDEX IF NOT EXISTS rondo_instances_by_wake ON rondo_instances (shard, wake_at, instance) WHERE wake_at IS NOT NULL;

CREATE TABLE IF NOT EXISTS rondo_history (
	execution  INT8 NOT NULL,
	event      INT8 NOT NULL,
	last_event INT8 NOT NULL,
	shard      INT2 NOT NULL,
	instance   TEXT COLLATE "C" NOT NULL,
	data       BYTEA NOT NULL,
	PRIMARY KEY (shard, instance, execution, event)
);

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
);

CREATE TABLE IF NOT EXISTS rondo_values (
	execution INT8 NOT NULL,
	set_at    TIMESTAMPTZ,
	shard     INT2 NOT NULL,
	instance  TEXT COLLATE "C" NOT NULL,
	key       TEXT COLLATE "C" NOT NULL,
	value     BYTEA,
	PRIMARY KEY (shard, instance, key)
);

CREATE TABLE IF NOT EXISTS rondo_attributes (
	created_at TIMESTAMPTZ NOT NULL,
	shard      INT2 NOT NULL,
	name       TEXT COLLATE "C" NOT NULL,
	value      TEXT COLLATE "C" NOT NULL,
	instance   TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (name, value, shard, created_at, instance)
);

CREATE TABLE IF NOT EXISTS rondo_outbox (
	id          INT8 NOT NULL,
	leased_until TIMESTAMPTZ,
	shard       INT2 NOT NULL,
	messages    BYTEA NOT NULL,
	PRIMARY KEY (shard, id)
);

CREATE TABLE IF NOT EXISTS rondo_marks (
	value INT8 NOT NULL,
	shard INT2 NOT NULL,
	name  TEXT NOT NULL,
	PRIMARY KEY (name, shard)
);

CREATE TABLE IF NOT EXISTS rondo_job_queues (
	starts BOOL NOT NULL DEFAULT FALSE,
	queue  TEXT COLLATE "C" NOT NULL,
	state  BYTEA NOT NULL,
	PRIMARY KEY (queue)
) WITH (fillfactor = 80);

CREATE INDEX IF NOT EXISTS rondo_job_queues_starting ON rondo_job_queues (queue) WHERE starts;

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
);

CREATE TABLE IF NOT EXISTS rondo_job_locks (
	number     INT8 NOT NULL,
	items      INT8 NOT NULL,
	created_at TIMESTAMPTZ NOT NULL,
	expires_at TIMESTAMPTZ NOT NULL,
	returned   BOOL NOT NULL,
	queue      TEXT COLLATE "C" NOT NULL,
	lock_id    TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (queue, lock_id)
);

CREATE INDEX IF NOT EXISTS rondo_job_locks_by_expiry ON rondo_job_locks (queue, returned, expires_at);

CREATE TABLE IF NOT EXISTS rondo_job_keys (
	items      INT8 NOT NULL,
	expires_at TIMESTAMPTZ NOT NULL,
	queue      TEXT COLLATE "C" NOT NULL,
	key        TEXT COLLATE "C" NOT NULL,
	digest     TEXT NOT NULL,
	PRIMARY KEY (queue, key)
);

CREATE INDEX IF NOT EXISTS rondo_job_keys_by_expiry ON rondo_job_keys (queue, expires_at);

CREATE TABLE IF NOT EXISTS rondo_system (
	id      INT8 PRIMARY KEY,
	beats   INT8 NOT NULL,
	beat_at TIMESTAMPTZ NOT NULL,
	system  TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS rondo_schedules (
	version    INT8 NOT NULL,
	token      INT8 NOT NULL,
	wake_at    TIMESTAMPTZ,
	changed_at TIMESTAMPTZ NOT NULL,
	id         TEXT COLLATE "C" NOT NULL,
	data       BYTEA NOT NULL,
	PRIMARY KEY (id)
) WITH (fillfactor = 80);

CREATE INDEX IF NOT EXISTS rondo_schedules_by_wake ON rondo_schedules (wake_at, id) WHERE wake_at IS NOT NULL;

INSERT INTO rondo_attributes (created_at, shard, name, value, instance) VALUES ('2026-03-01 12:00:00+00', '11', 'größe', 'L', 'runs');
INSERT INTO rondo_attributes (created_at, shard, name, value, instance) VALUES ('2026-03-01 12:00:00+00', '11', 'region', 'eu', 'runs');
INSERT INTO rondo_attributes (created_at, shard, name, value, instance) VALUES ('2026-03-01 15:00:00+00', '11', 'region', 'us', 'ended');
INSERT INTO rondo_executions (execution, last_event, history_bytes, engine, started_at, ended_at, shard, instance, incarnation, name, version, status, error, output) VALUES ('1', '3', '19', '1', '2026-03-01 12:00:00+00', '2026-03-01 13:00:00+00', '11', 'ended', '12800843bda1c8fb', 'orders', '1.0.0', 'continued_as_new', NULL, NULL);
INSERT INTO rondo_executions (execution, last_event, history_bytes, engine, started_at, ended_at, shard, instance, incarnation, name, version, status, error, output) VALUES ('2', '2', '13', '1', '2026-03-01 13:00:00+00', '2026-03-01 14:00:00+00', '11', 'ended', '12800843bda1c8fb', 'orders', '1.0.0', 'failed', E'\\x7b226b696e64223a226170706c69636174696f6e222c226d657373616765223a2263617264206465636c696e6564227d', NULL);
INSERT INTO rondo_history (execution, event, last_event, shard, instance, data) VALUES ('1', '1', '1', '11', 'ended', E'\\x7b226964223a312c226174223a22323032362d30332d30315431323a30303a30305a222c226b696e64223a2273746172746564222c2264617461223a7b226e616d65223a226f7264657273222c2276657273696f6e223a22312e302e30222c22696e707574223a7b226e223a317d2c22696e6361726e6174696f6e223a2231323830303834336264613163386662222c22656e67696e65223a312c226d657373616765223a2273746172742d656e6465642d30222c2261747472696275746573223a7b22726567696f6e223a227573227d7d7d');
INSERT INTO rondo_history (execution, event, last_event, shard, instance, data) VALUES ('1', '1', '1', '13', 'child', E'\\x7b226964223a312c226174223a22323032362d30332d30315431323a30303a30305a222c226b696e64223a2273746172746564222c2264617461223a7b226e616d65223a226f7264657273222c2276657273696f6e223a22312e302e30222c22696e707574223a7b226e223a317d2c22696e6361726e6174696f6e223a2266646461636333343665323361326562222c22656e67696e65223a312c226d657373616765223a2273746172742d6368696c642d30222c22706172656e74223a7b22696e7374616e6365223a2272756e73222c22696e6361726e6174696f6e223a2232623030643864663631633839643331222c22657865637574696f6e223a312c226576656e74223a357d7d7d');
INSERT INTO rondo_history (execution, event, last_event, shard, instance, data) VALUES ('1', '1', '2', '11', 'runs', E'\\x7b226964223a312c226174223a22323032362d30332d30315431323a30303a30305a222c226b696e64223a2273746172746564222c2264617461223a7b226e616d65223a226f7264657273222c2276657273696f6e223a22312e302e30222c22696e707574223a7b226e223a317d2c22696e6361726e6174696f6e223a2232623030643864663631633839643331222c22656e67696e65223a312c226d657373616765223a2273746172742d72756e732d30222c2261747472696275746573223a7b226772c3b6c39f65223a224c222c22726567696f6e223a226575227d2c227472616365223a2230302d30616637363531393136636434336464383434386562323131633830333139632d623761643662373136393230333333312d3031227d7d0a7b226964223a322c226174223a22323032362d30332d30315431323a30303a30305a222c226b696e64223a2261637469766974795f7363686564756c6564222c2264617461223a7b226e616d65223a22636861726765222c22696e707574223a7b22736b75223a226131227d2c22617474656d7074223a317d7d');
INSERT INTO rondo_history (execution, event, last_event, shard, instance, data) VALUES ('1', '2', '2', '11', 'ended', E'\\x7b226964223a322c226174223a22323032362d30332d30315431323a30303a30305a222c226b696e64223a2276616c75655f736574222c2264617461223a7b226b6579223a226b657074222c2276616c7565223a5b312c322c335d2c22736574223a22323032362d30332d30315431323a30303a30305a227d7d');
INSERT INTO rondo_history (execution, event, last_event, shard, instance, data) VALUES ('1', '2', '2', '13', 'child', E'\\x7b226964223a322c226174223a22323032362d30332d30315431323a30303a30305a222c226b696e64223a226576656e745f7265636569766564222c2264617461223a7b2277616974223a312c226e616d65223a226e6f7465222c2264617461223a317d7d');
INSERT INTO rondo_history (execution, event, last_event, shard, instance, data) VALUES ('1', '3', '3', '11', 'ended', E'\\x7b226964223a332c226174223a22323032362d30332d30315431333a30303a30305a222c226b696e64223a22636f6e74696e7565645f61735f6e6577222c2264617461223a7b226e616d65223a226f7264657273222c2276657273696f6e223a22312e302e30222c22696e707574223a327d7d');
INSERT INTO rondo_history (execution, event, last_event, shard, instance, data) VALUES ('1', '3', '5', '11', 'runs', E'\\x7b226964223a332c226174223a22323032362d30332d30315431323a30303a30305a222c226b696e64223a2276616c75655f736574222c2264617461223a7b226b6579223a2273746f636b222c2276616c7565223a7b22736b75223a226131222c226e223a377d2c22736574223a22323032362d30332d30315431323a30303a30305a227d7d0a7b226964223a342c226174223a22323032362d30332d30315431323a30303a30305a222c226b696e64223a2276616c75655f736574222c2264617461223a7b226b6579223a22656d707479222c22736574223a22323032362d30332d30315431323a30303a30305a227d7d0a7b226964223a352c226174223a22323032362d30332d30315431323a30303a30305a222c226b696e64223a227374617475735f736574222c2264617461223a7b22737461747573223a2268616c66222c2276657273696f6e223a317d7d');
INSERT INTO rondo_history (execution, event, last_event, shard, instance, data) VALUES ('2', '1', '1', '11', 'ended', E'\\x7b226964223a312c226174223a22323032362d30332d30315431333a30303a30305a222c226b696e64223a2273746172746564222c2264617461223a7b226e616d65223a226f7264657273222c2276657273696f6e223a22312e302e30222c22696e6361726e6174696f6e223a2231323830303834336264613163386662222c22656e67696e65223a312c226d657373616765223a2273746172742d656e6465642d30222c2261747472696275746573223a7b22726567696f6e223a227573227d2c2270726576696f7573223a317d7d');
INSERT INTO rondo_history (execution, event, last_event, shard, instance, data) VALUES ('2', '2', '2', '11', 'ended', E'\\x7b226964223a322c226174223a22323032362d30332d30315431343a30303a30305a222c226b696e64223a226661696c6564222c2264617461223a7b226572726f72223a7b226b696e64223a226170706c69636174696f6e222c226d657373616765223a2263617264206465636c696e6564227d7d7d');
INSERT INTO rondo_history (execution, event, last_event, shard, instance, data) VALUES ('3', '1', '1', '11', 'ended', E'\\x7b226964223a312c226174223a22323032362d30332d30315431353a30303a30305a222c226b696e64223a2273746172746564222c2264617461223a7b226e616d65223a22726566756e64222c2276657273696f6e223a22322e302e30222c22696e707574223a7b226e223a317d2c22696e6361726e6174696f6e223a2231653864323736313530303139356333222c22656e67696e65223a312c226d657373616765223a22616761696e222c2261747472696275746573223a7b22726567696f6e223a227573227d7d7d');
INSERT INTO rondo_history (execution, event, last_event, shard, instance, data) VALUES ('3', '2', '2', '11', 'ended', E'\\x7b226964223a322c226174223a22323032362d30332d30315431363a30303a30305a222c226b696e64223a22636f6d706c65746564222c2264617461223a7b226f7574707574223a7b22726566756e646564223a747275657d7d7d');
INSERT INTO rondo_instances (execution, last_event, expected_execution, expected_event, custom_status_version, history_bytes, unread, engine, parent_execution, parent_event, created_at, started_at, updated_at, ended_at, wake_at, shard, fresh, instance, incarnation, expected_incarnation, status, name, version, parent_instance, parent_incarnation, trace, start_message, attributes, error, custom_status, output) VALUES ('0', '0', '0', '0', '0', '0', '0', '0', NULL, NULL, '2026-03-02 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-02 12:00:00+00', NULL, NULL, '4', 'false', 'buried', '', '', 'deleted', '', '', NULL, NULL, NULL, 'start-buried-0', NULL, NULL, NULL, NULL);
INSERT INTO rondo_instances (execution, last_event, expected_execution, expected_event, custom_status_version, history_bytes, unread, engine, parent_execution, parent_event, created_at, started_at, updated_at, ended_at, wake_at, shard, fresh, instance, incarnation, expected_incarnation, status, name, version, parent_instance, parent_incarnation, trace, start_message, attributes, error, custom_status, output) VALUES ('1', '2', '0', '0', '0', '8', '0', '1', '1', '5', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', NULL, NULL, '13', 'false', 'child', 'fddacc346e23a2eb', '', 'running', 'orders', '1.0.0', 'runs', '2b00d8df61c89d31', NULL, 'start-child-0', NULL, NULL, NULL, NULL);
INSERT INTO rondo_instances (execution, last_event, expected_execution, expected_event, custom_status_version, history_bytes, unread, engine, parent_execution, parent_event, created_at, started_at, updated_at, ended_at, wake_at, shard, fresh, instance, incarnation, expected_incarnation, status, name, version, parent_instance, parent_incarnation, trace, start_message, attributes, error, custom_status, output) VALUES ('1', '5', '1', '2', '1', '53', '0', '1', NULL, NULL, '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', NULL, '2026-03-02 11:55:00+00', '11', 'false', 'runs', '2b00d8df61c89d31', '2b00d8df61c89d31', 'running', 'orders', '1.0.0', NULL, NULL, '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'start-runs-0', E'\\x7b226772c3b6c39f65223a224c222c22726567696f6e223a226575227d', NULL, E'\\x2268616c6622', NULL);
INSERT INTO rondo_instances (execution, last_event, expected_execution, expected_event, custom_status_version, history_bytes, unread, engine, parent_execution, parent_event, created_at, started_at, updated_at, ended_at, wake_at, shard, fresh, instance, incarnation, expected_incarnation, status, name, version, parent_instance, parent_incarnation, trace, start_message, attributes, error, custom_status, output) VALUES ('3', '2', '2', '2', '0', '24', '0', '1', NULL, NULL, '2026-03-01 15:00:00+00', '2026-03-01 15:00:00+00', '2026-03-01 16:00:00+00', '2026-03-01 16:00:00+00', NULL, '11', 'false', 'ended', '1e8d2761500195c3', '12800843bda1c8fb', 'completed', 'refund', '2.0.0', NULL, NULL, NULL, 'again', E'\\x7b22726567696f6e223a227573227d', NULL, NULL, E'\\x7b22726566756e646564223a747275657d');
INSERT INTO rondo_job_keys (items, expires_at, queue, key, digest) VALUES ('4', '2026-03-02 13:00:00+00', 'orders', 'key', 'digest');
INSERT INTO rondo_job_locks (number, items, created_at, expires_at, returned, queue, lock_id) VALUES ('1', '1', '2026-03-02 12:00:00+00', '2026-03-02 12:00:30+00', 'false', 'many', 'one');
INSERT INTO rondo_job_locks (number, items, created_at, expires_at, returned, queue, lock_id) VALUES ('1', '1', '2026-03-02 12:00:00+00', '2026-03-02 12:00:30+00', 'true', 'emptied', 'over');
INSERT INTO rondo_job_locks (number, items, created_at, expires_at, returned, queue, lock_id) VALUES ('2', '1', '2026-03-02 12:00:00+00', '2026-03-02 12:00:30+00', 'false', 'many', 'two');
INSERT INTO rondo_job_queues (starts, queue, state) VALUES ('false', 'emptied', E'\\x7b22696e6361726e6174696f6e223a2239393462373063623538353239623133222c2273657474696e6773223a7b7d2c226c617374223a312c226c6173745f6c6f636b223a312c226e6578745f666f72676574223a22323032362d30332d30325431323a31303a33305a222c22746f74616c73223a7b22707573686564223a312c22706f70706564223a312c2265787069726564223a317d2c226174223a22323032362d30332d30325431323a30303a30305a222c2277726974657273223a7b2233323037316432643631346437623562223a7b22746f6b656e223a362c226174223a22323032362d30332d30325431323a30303a30305a227d7d7d');
INSERT INTO rondo_job_queues (starts, queue, state) VALUES ('false', 'many', E'\\x7b22696e6361726e6174696f6e223a2238336338323339303038323762643433222c2273657474696e6773223a7b226d6f6465223a22636f6e63757272656e74227d2c226c617374223a342c226c6173745f6c6f636b223a332c226c6576656c73223a7b2230223a7b227265616479223a312c2268656164223a347d7d2c2264656c61796564223a312c226e6578745f647565223a22323032362d30332d30325431333a30303a30305a222c226c6f636b73223a322c226e6578745f657870697279223a22323032362d30332d30325431323a30303a33305a222c226c6173745f657870697279223a22323032362d30332d30325431323a30303a33305a222c226c6f636b6564223a322c22746f74616c73223a7b22707573686564223a342c22706f70706564223a332c2272657475726e6564223a317d2c226174223a22323032362d30332d30325431323a30303a30305a222c2277726974657273223a7b2233323037316432643631346437623562223a7b22746f6b656e223a352c226174223a22323032362d30332d30325431323a30303a30305a227d7d7d');
INSERT INTO rondo_job_queues (starts, queue, state) VALUES ('false', 'orders', E'\\x7b22696e6361726e6174696f6e223a2238353531373263316662666435356232222c2273657474696e6773223a7b227072696f726974696573223a352c2274746c5f7365636f6e6473223a36302c226d61785f617474656d707473223a322c226d61785f6974656d73223a3130307d2c226c617374223a352c226c6173745f6c6f636b223a332c226c6576656c73223a7b2234223a7b227265616479223a312c2268656164223a347d7d2c2264656c61796564223a312c226e6578745f647565223a22323032362d30332d30325431333a30303a30305a222c226578636c7573697665223a7b226c6f636b5f6964223a226578636c7573697665222c226e756d626572223a332c226974656d73223a322c22637265617465645f6174223a22323032362d30332d30325431323a30303a30305a222c22657870697265735f6174223a22323032362d30332d30325431323a30313a30305a227d2c226c6f636b6564223a322c2264656164223a312c226e6578745f6b6579223a22323032362d30332d30325431333a30303a30305a222c22746f74616c73223a7b22707573686564223a352c22706f70706564223a342c2272657475726e6564223a322c2264696564223a317d2c226174223a22323032362d30332d30325431323a30303a30305a222c2277726974657273223a7b2233323037316432643631346437623562223a7b22746f6b656e223a342c226174223a22323032362d30332d30325431323a30303a30305a227d7d7d');
INSERT INTO rondo_job_queues (starts, queue, state) VALUES ('true', 'starts', E'\\x7b22696e6361726e6174696f6e223a2237386262393465346135356530326432222c2273657474696e6773223a7b227374617274223a7b226f726368657374726174696f6e223a226f72646572222c2276657273696f6e223a22312e322e30222c226d61785f7065725f7365636f6e64223a302e357d7d2c226c617374223a302c22746f74616c73223a7b7d2c226174223a22323032362d30332d30325431323a30303a30305a222c2277726974657273223a7b2233323037316432643631346437623562223a7b22746f6b656e223a372c226174223a22323032362d30332d30325431323a30303a30305a227d7d7d');
INSERT INTO rondo_jobs (rank, position, id, attempts, size, pushed_at, ready_at, place, priority, queue, trace, reason, item) VALUES ('0', '4', '4', '0', '1', '2026-03-02 12:00:00+00', '2026-03-02 12:00:00+00', '0', '0', 'many', NULL, NULL, E'\\x34');
INSERT INTO rondo_jobs (rank, position, id, attempts, size, pushed_at, ready_at, place, priority, queue, trace, reason, item) VALUES ('1', '1', '1', '1', '1', '2026-03-02 12:00:00+00', '2026-03-02 12:00:00+00', '2', '0', 'many', NULL, NULL, E'\\x31');
INSERT INTO rondo_jobs (rank, position, id, attempts, size, pushed_at, ready_at, place, priority, queue, trace, reason, item) VALUES ('1772452800000000', '1', '1', '2', '6', '2026-03-02 12:00:00+00', '2026-03-02 12:00:00+00', '3', '0', 'orders', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'größer als erlaubt', E'\\x226469657322');
INSERT INTO rondo_jobs (rank, position, id, attempts, size, pushed_at, ready_at, place, priority, queue, trace, reason, item) VALUES ('1772456400000000', '3', '3', '1', '1', '2026-03-02 12:00:00+00', '2026-03-02 12:00:00+00', '1', '0', 'many', NULL, NULL, E'\\x33');
INSERT INTO rondo_jobs (rank, position, id, attempts, size, pushed_at, ready_at, place, priority, queue, trace, reason, item) VALUES ('1772456400000000', '5', '5', '0', '7', '2026-03-02 12:00:00+00', '2026-03-02 12:00:00+00', '1', '1', 'orders', NULL, NULL, E'\\x226c6174657222');
INSERT INTO rondo_jobs (rank, position, id, attempts, size, pushed_at, ready_at, place, priority, queue, trace, reason, item) VALUES ('2', '2', '2', '1', '1', '2026-03-02 12:00:00+00', '2026-03-02 12:00:00+00', '2', '0', 'many', NULL, NULL, E'\\x32');
INSERT INTO rondo_jobs (rank, position, id, attempts, size, pushed_at, ready_at, place, priority, queue, trace, reason, item) VALUES ('3', '2', '2', '1', '7', '2026-03-02 12:00:00+00', '2026-03-02 12:00:00+00', '2', '3', 'orders', NULL, NULL, E'\\x7b226e223a317d');
INSERT INTO rondo_jobs (rank, position, id, attempts, size, pushed_at, ready_at, place, priority, queue, trace, reason, item) VALUES ('3', '3', '3', '1', '7', '2026-03-02 12:00:00+00', '2026-03-02 12:00:00+00', '2', '0', 'orders', NULL, NULL, E'\\x7b226e223a327d');
INSERT INTO rondo_jobs (rank, position, id, attempts, size, pushed_at, ready_at, place, priority, queue, trace, reason, item) VALUES ('4', '4', '4', '0', '7', '2026-03-02 12:00:00+00', '2026-03-02 12:00:00+00', '0', '4', 'orders', NULL, NULL, E'\\x7b226e223a337d');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '0', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '0', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '1', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '1', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '10', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '10', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '11', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '11', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '12', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '12', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '13', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '13', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '14', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '14', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '15', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '15', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '2', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '2', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '3', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '3', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '4', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '4', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '5', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '5', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '6', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '6', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '7', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '7', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '8', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '8', 'wake');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '9', 'outbox');
INSERT INTO rondo_marks (value, shard, name) VALUES ('1772362800000000', '9', 'wake');
INSERT INTO rondo_outbox (id, leased_until, shard, messages) VALUES ('797147136000000463', NULL, '9', E'\\xd10101002f726f6e646f2e7461736b2e5f2e6368617267652e312d322d663862383234663565393862616562622e627572696564050d526f6e646f2d417474656d707401013108526f6e646f2d496401207461736b2f312d322f663862383234663565393862616562622f62757269656411526f6e646f2d496e6361726e6174696f6e01106638623832346635653938626165626213526f6e646f2d4f726368657374726174696f6e01066f72646572730d526f6e646f2d56657273696f6e0105312e302e300c7b22736b75223a226131227d');
INSERT INTO rondo_outbox (id, leased_until, shard, messages) VALUES ('797147136000003715', NULL, '9', E'\\x39010013726f6e646f2e6576656e742e676f2e72756e730108526f6e646f2d4964010a66726f6d2d6368696c640c2266726f6d2d6368696c6422');
INSERT INTO rondo_outbox (id, leased_until, shard, messages) VALUES ('797147136000003894', NULL, '9', E'\\xcd0101002d726f6e646f2e7461736b2e5f2e6368617267652e312d322d326230306438646636316338396433312e72756e73050d526f6e646f2d417474656d707401013108526f6e646f2d4964011e7461736b2f312d322f326230306438646636316338396433312f72756e7311526f6e646f2d496e6361726e6174696f6e01103262303064386466363163383964333113526f6e646f2d4f726368657374726174696f6e01066f72646572730d526f6e646f2d56657273696f6e0105312e302e300c7b22736b75223a226131227d');
INSERT INTO rondo_outbox (id, leased_until, shard, messages) VALUES ('797147136000003972', NULL, '9', E'\\x33010014726f6e646f2e696e626f782e312e686f75726c790108526f6e646f2d4964010d66726f6d2d7363686564756c65027b7d');
INSERT INTO rondo_schedules (version, token, wake_at, changed_at, id, data) VALUES ('3071857639332742', '1603475497131734470', '2026-03-01 14:00:00+00', '2026-03-01 12:00:00+00', 'hourly', E'\\x7b2263726f6e223a2240686f75726c79227d');
INSERT INTO rondo_schedules (version, token, wake_at, changed_at, id, data) VALUES ('510193091953487', '191336110250047562', NULL, '2026-03-01 12:00:00+00', 'rests', E'\\x7b7d');
INSERT INTO rondo_schema (id, version, holder, held_until) VALUES ('1', '3', NULL, NULL);
INSERT INTO rondo_system (id, beats, beat_at, system) VALUES ('1', '0', '2026-12-01 00:25:29.759569+00', '');
INSERT INTO rondo_values (execution, set_at, shard, instance, key, value) VALUES ('1', '2026-03-01 12:00:00+00', '11', 'runs', 'empty', E'\\x');
INSERT INTO rondo_values (execution, set_at, shard, instance, key, value) VALUES ('1', '2026-03-01 12:00:00+00', '11', 'runs', 'stock', E'\\x7b22736b75223a226131222c226e223a377d');
