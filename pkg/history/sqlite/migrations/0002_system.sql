-- The one row says with which NATS the database makes a system, and counts how often an orchestrator has seen them agree.
CREATE TABLE rondo_system (
	id      INTEGER PRIMARY KEY,
	system  TEXT NOT NULL,
	beats   INTEGER NOT NULL,
	beat_at INTEGER NOT NULL
) STRICT;

INSERT INTO rondo_system (id, system, beats, beat_at) VALUES (1, '', 0, 0);
