-- The token is a random number of the change that wrote the row, by which that change is recognized if its outcome is in doubt.
CREATE TABLE rondo_schedules (
	id         TEXT NOT NULL PRIMARY KEY,
	version    INTEGER NOT NULL,
	token      INTEGER NOT NULL,
	wake_at    INTEGER,
	changed_at INTEGER NOT NULL,
	data       BLOB NOT NULL
) STRICT;

CREATE INDEX rondo_schedules_by_wake ON rondo_schedules (wake_at, id) WHERE wake_at IS NOT NULL;
