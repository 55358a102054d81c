-- Queues. A row of rondo_queues is the queue's state, and whoever changes anything of a queue holds it. The keys begin with the queue, so that each queue is at a
-- place of its own, and what is done to one is in one place.

CREATE TABLE IF NOT EXISTS rondo_queues (
	starts BOOL NOT NULL DEFAULT FALSE,
	queue  {{text}} NOT NULL,
	state  BYTEA NOT NULL,
	PRIMARY KEY (queue)
) {{fill 80}};

CREATE INDEX IF NOT EXISTS rondo_queues_starting ON rondo_queues (queue) WHERE starts;

-- The place is 0 for items that are ready, whose rank is their priority, 1 for delayed ones (when they are due), 2 for locked ones (the number of the lock), 3 for dead
-- ones (when they died); times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS rondo_queue_items (
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
CREATE TABLE IF NOT EXISTS rondo_queue_locks (
	number     INT8 NOT NULL,
	items      INT8 NOT NULL,
	created_at TIMESTAMPTZ NOT NULL,
	expires_at TIMESTAMPTZ NOT NULL,
	returned   BOOL NOT NULL,
	queue      {{text}} NOT NULL,
	lock_id    {{text}} NOT NULL,
	PRIMARY KEY (queue, lock_id)
);

CREATE INDEX IF NOT EXISTS rondo_queue_locks_by_expiry ON rondo_queue_locks (queue, returned, expires_at);

CREATE TABLE IF NOT EXISTS rondo_queue_keys (
	items      INT8 NOT NULL,
	expires_at TIMESTAMPTZ NOT NULL,
	queue      {{text}} NOT NULL,
	key        {{text}} NOT NULL,
	digest     TEXT NOT NULL,
	PRIMARY KEY (queue, key)
);

CREATE INDEX IF NOT EXISTS rondo_queue_keys_by_expiry ON rondo_queue_keys (queue, expires_at);
