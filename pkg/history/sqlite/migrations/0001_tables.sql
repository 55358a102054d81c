-- Times are microseconds since 1970, in UTC. The shard is 0 in all rows: one process needs none, and the statements that all stores share name it.

CREATE TABLE rondo_instances (
	shard                 INTEGER NOT NULL DEFAULT 0,
	instance              TEXT NOT NULL,
	life                  TEXT NOT NULL,
	execution             INTEGER NOT NULL,
	last_event            INTEGER NOT NULL,
	status                TEXT NOT NULL,
	name                  TEXT NOT NULL,
	version               TEXT NOT NULL,
	engine                INTEGER NOT NULL,
	fresh                 INTEGER NOT NULL,
	custom_status_version INTEGER NOT NULL,
	history_bytes         INTEGER NOT NULL,
	unread                INTEGER NOT NULL,
	created_at            INTEGER NOT NULL,
	started_at            INTEGER,
	updated_at            INTEGER NOT NULL,
	ended_at              INTEGER,
	wake_at               INTEGER,
	parent_instance       TEXT,
	parent_life           TEXT,
	parent_execution      INTEGER,
	parent_event          INTEGER,
	trace                 TEXT,
	start_message         TEXT,
	attributes            BLOB,
	error                 BLOB,
	custom_status         BLOB,
	output                BLOB,
	PRIMARY KEY (shard, instance)
) STRICT, WITHOUT ROWID;

CREATE INDEX rondo_instances_by_status ON rondo_instances (status, shard, created_at, instance);

CREATE INDEX rondo_instances_by_name ON rondo_instances (name, status, shard, created_at, instance);

CREATE INDEX rondo_instances_by_parent ON rondo_instances (parent_instance, created_at, instance) WHERE parent_instance IS NOT NULL;

CREATE INDEX rondo_instances_by_wake ON rondo_instances (shard, wake_at, instance) WHERE wake_at IS NOT NULL;

-- A row has the events of a turn, from event to last_event, one on each line.
CREATE TABLE rondo_history (
	shard      INTEGER NOT NULL DEFAULT 0,
	instance   TEXT NOT NULL,
	execution  INTEGER NOT NULL,
	event      INTEGER NOT NULL,
	last_event INTEGER NOT NULL,
	data       BLOB NOT NULL,
	PRIMARY KEY (shard, instance, execution, event)
) STRICT;

CREATE TABLE rondo_executions (
	shard         INTEGER NOT NULL DEFAULT 0,
	instance      TEXT NOT NULL,
	execution     INTEGER NOT NULL,
	life          TEXT NOT NULL,
	name          TEXT NOT NULL,
	version       TEXT NOT NULL,
	engine        INTEGER NOT NULL,
	status        TEXT NOT NULL,
	started_at    INTEGER,
	ended_at      INTEGER,
	last_event    INTEGER NOT NULL,
	history_bytes INTEGER NOT NULL,
	error         BLOB,
	output        BLOB,
	PRIMARY KEY (shard, instance, execution)
) STRICT, WITHOUT ROWID;

CREATE TABLE rondo_values (
	shard     INTEGER NOT NULL DEFAULT 0,
	instance  TEXT NOT NULL,
	key       TEXT NOT NULL,
	execution INTEGER NOT NULL,
	set_at    INTEGER,
	value     BLOB,
	PRIMARY KEY (shard, instance, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE rondo_attributes (
	name       TEXT NOT NULL,
	value      TEXT NOT NULL,
	shard      INTEGER NOT NULL DEFAULT 0,
	created_at INTEGER NOT NULL,
	instance   TEXT NOT NULL,
	PRIMARY KEY (name, value, shard, created_at, instance)
) STRICT, WITHOUT ROWID;

-- The id is the row's own number, so that new rows go to the end. It is before the messages, which may be large, and so is what a sweep looks at.
CREATE TABLE rondo_outbox (
	id          INTEGER PRIMARY KEY,
	shard       INTEGER NOT NULL DEFAULT 0,
	taken_until INTEGER,
	messages    BLOB NOT NULL
) STRICT;
