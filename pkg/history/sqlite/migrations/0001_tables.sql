-- Times are microseconds since 1970, in UTC. The shard is 0 in all rows: one process needs none, and the statements that all stores share name it.

CREATE TABLE rondo_instances (
	shard                 INTEGER NOT NULL DEFAULT 0,
	instance              TEXT NOT NULL,
	incarnation           TEXT NOT NULL,
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
	parent_incarnation    TEXT,
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
	incarnation   TEXT NOT NULL,
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
	leased_until INTEGER,
	messages    BLOB NOT NULL
) STRICT;

-- Job queues. A row of rondo_job_queues is the state of a queue.

CREATE TABLE rondo_job_queues (
	queue  TEXT NOT NULL PRIMARY KEY,
	starts INTEGER NOT NULL DEFAULT 0,
	state  BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX rondo_job_queues_starting ON rondo_job_queues (queue) WHERE starts;

-- place      rank
-- 0 ready    the priority
-- 1 delayed  when the item is due
-- 2 locked   the number of the lock
-- 3 dead     when the item died
CREATE TABLE rondo_jobs (
	queue     TEXT NOT NULL,
	place     INTEGER NOT NULL,
	rank      INTEGER NOT NULL,
	position  INTEGER NOT NULL,
	id        INTEGER NOT NULL,
	priority  INTEGER NOT NULL,
	attempts  INTEGER NOT NULL DEFAULT 0,
	size      INTEGER NOT NULL,
	pushed_at INTEGER NOT NULL,
	ready_at  INTEGER NOT NULL,
	trace     TEXT,
	reason    TEXT,
	item      BLOB NOT NULL,
	PRIMARY KEY (queue, place, rank, position)
) STRICT;

-- Concurrent locks; an exclusive one is in the queue's state.
CREATE TABLE rondo_job_locks (
	queue      TEXT NOT NULL,
	lock_id    TEXT NOT NULL,
	number     INTEGER NOT NULL,
	items      INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	returned   INTEGER NOT NULL,
	PRIMARY KEY (queue, lock_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX rondo_job_locks_by_expiry ON rondo_job_locks (queue, returned, expires_at);

CREATE TABLE rondo_job_keys (
	queue      TEXT NOT NULL,
	key        TEXT NOT NULL,
	digest     TEXT NOT NULL,
	items      INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX rondo_job_keys_by_expiry ON rondo_job_keys (queue, expires_at);
