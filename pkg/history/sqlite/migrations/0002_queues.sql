-- Queues. A row of rondo_queues is the queue's state.

CREATE TABLE rondo_queues (
	queue  TEXT NOT NULL PRIMARY KEY,
	starts INTEGER NOT NULL DEFAULT 0,
	state  BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX rondo_queues_starting ON rondo_queues (queue) WHERE starts;

-- The place is 0 for items that are ready, whose rank is their priority, 1 for delayed ones (when they are due), 2 for locked ones (the number of the lock), 3 for dead
-- ones (when they died).
CREATE TABLE rondo_queue_items (
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
CREATE TABLE rondo_queue_locks (
	queue      TEXT NOT NULL,
	lock_id    TEXT NOT NULL,
	number     INTEGER NOT NULL,
	items      INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	returned   INTEGER NOT NULL,
	PRIMARY KEY (queue, lock_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX rondo_queue_locks_by_expiry ON rondo_queue_locks (queue, returned, expires_at);

CREATE TABLE rondo_queue_keys (
	queue      TEXT NOT NULL,
	key        TEXT NOT NULL,
	digest     TEXT NOT NULL,
	items      INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX rondo_queue_keys_by_expiry ON rondo_queue_keys (queue, expires_at);
