-- The token is a random number of the change that wrote the row, by which that change is recognized if its outcome is in doubt.
CREATE TABLE IF NOT EXISTS rondo_schedules (
	version    INT8 NOT NULL,
	token      INT8 NOT NULL,
	wake_at    TIMESTAMPTZ,
	changed_at TIMESTAMPTZ NOT NULL,
	id         {{text}} NOT NULL,
	data       BYTEA NOT NULL,
	PRIMARY KEY (id)
) {{fill 80}};

CREATE INDEX IF NOT EXISTS rondo_schedules_by_wake ON rondo_schedules (wake_at, id) WHERE wake_at IS NOT NULL;
