-- Statements end with a semicolon at the end of a line. Each is run by itself and must do no harm when it is run again.
-- {{text}} is text that sorts by its bytes; {{fill N}} leaves room on a page for a row's next version.
-- expected_… is the version that the last turn of an instance expected. A commit compares it; in the usual case it is left out.

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
	instance              {{text}} NOT NULL,
	incarnation           TEXT NOT NULL,
	expected_incarnation  TEXT NOT NULL DEFAULT '',
	status                {{text}} NOT NULL,
	name                  {{text}} NOT NULL,
	version               TEXT NOT NULL,
	parent_instance       {{text}},
	parent_incarnation    TEXT,
	trace                 TEXT,
	start_message         TEXT,
	attributes            BYTEA,
	error                 BYTEA,
	custom_status         BYTEA,
	output                BYTEA,
	PRIMARY KEY (shard, instance)
) {{fill 80}};

CREATE INDEX IF NOT EXISTS rondo_instances_by_status ON rondo_instances (status, shard, created_at, instance);

CREATE INDEX IF NOT EXISTS rondo_instances_by_name ON rondo_instances (name, status, shard, created_at, instance);

CREATE INDEX IF NOT EXISTS rondo_instances_by_parent ON rondo_instances (parent_instance, created_at, instance) WHERE parent_instance IS NOT NULL;

CREATE INDEX IF NOT EXISTS rondo_instances_by_wake ON rondo_instances (shard, wake_at, instance) WHERE wake_at IS NOT NULL;

-- A row has the events of a turn, from event to last_event, one on each line.
CREATE TABLE IF NOT EXISTS rondo_history (
	execution  INT8 NOT NULL,
	event      INT8 NOT NULL,
	last_event INT8 NOT NULL,
	shard      INT2 NOT NULL,
	instance   {{text}} NOT NULL,
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
	instance      {{text}} NOT NULL,
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
	instance  {{text}} NOT NULL,
	key       {{text}} NOT NULL,
	value     BYTEA,
	PRIMARY KEY (shard, instance, key)
);

CREATE TABLE IF NOT EXISTS rondo_attributes (
	created_at TIMESTAMPTZ NOT NULL,
	shard      INT2 NOT NULL,
	name       {{text}} NOT NULL,
	value      {{text}} NOT NULL,
	instance   {{text}} NOT NULL,
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

-- Job queues. A row of rondo_job_queues is the state of a queue; every transaction that changes the queue locks that row.
-- The primary keys begin with the queue, so that the rows of one queue are in one range.

CREATE TABLE IF NOT EXISTS rondo_job_queues (
	starts BOOL NOT NULL DEFAULT FALSE,
	queue  {{text}} NOT NULL,
	state  BYTEA NOT NULL,
	PRIMARY KEY (queue)
) {{fill 80}};

CREATE INDEX IF NOT EXISTS rondo_job_queues_starting ON rondo_job_queues (queue) WHERE starts;

-- place      rank
-- 0 ready    the priority
-- 1 delayed  when the item is due
-- 2 locked   the number of the lock
-- 3 dead     when the item died
-- Times in rank are microseconds since 1970.
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
	queue     {{text}} NOT NULL,
	trace     TEXT,
	reason    TEXT,
	item      BYTEA NOT NULL,
	PRIMARY KEY (queue, place, rank, position)
);

-- Concurrent locks; an exclusive one is in the queue's state.
CREATE TABLE IF NOT EXISTS rondo_job_locks (
	number     INT8 NOT NULL,
	items      INT8 NOT NULL,
	created_at TIMESTAMPTZ NOT NULL,
	expires_at TIMESTAMPTZ NOT NULL,
	returned   BOOL NOT NULL,
	queue      {{text}} NOT NULL,
	lock_id    {{text}} NOT NULL,
	PRIMARY KEY (queue, lock_id)
);

CREATE INDEX IF NOT EXISTS rondo_job_locks_by_expiry ON rondo_job_locks (queue, returned, expires_at);

CREATE TABLE IF NOT EXISTS rondo_job_keys (
	items      INT8 NOT NULL,
	expires_at TIMESTAMPTZ NOT NULL,
	queue      {{text}} NOT NULL,
	key        {{text}} NOT NULL,
	digest     TEXT NOT NULL,
	PRIMARY KEY (queue, key)
);

CREATE INDEX IF NOT EXISTS rondo_job_keys_by_expiry ON rondo_job_keys (queue, expires_at);
