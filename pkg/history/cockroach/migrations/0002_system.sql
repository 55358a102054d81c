-- The one row says with which NATS the database makes a system, and counts how often an orchestrator has seen them agree.
CREATE TABLE IF NOT EXISTS rondo_system (
	id      INT8 PRIMARY KEY,
	beats   INT8 NOT NULL,
	beat_at TIMESTAMPTZ NOT NULL,
	system  TEXT NOT NULL
);

INSERT INTO rondo_system (id, beats, beat_at, system) VALUES (1, 0, now(), '') ON CONFLICT (id) DO NOTHING;
