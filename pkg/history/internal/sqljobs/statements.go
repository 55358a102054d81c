package sqljobs

import (
	"fmt"
	"slices"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

const (
	// jobColumns are the columns of a job that are read.
	jobColumns = "id, priority, position, attempts, pushed_at, ready_at, trace, item"
	// front is the condition that a row is one of the first $4 ready jobs of a priority: as the
	// transaction holds the queue, no other one can insert between them.
	front = `queue = $1 AND place = 0 AND rank = $2 AND position >= $3 AND position <= (SELECT max(position) FROM (
		SELECT position FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 ORDER BY position LIMIT $4) AS first)`

	sizesOfJobs = "SELECT size FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= " +
		"$3 ORDER BY position LIMIT $4"
	takeJobs = "DELETE FROM rondo_jobs WHERE " + front + " RETURNING " + jobColumns
	holdJobs = "UPDATE rondo_jobs SET place = 2, rank = $5, attempts = attempts + 1 WHERE " + front +
		" RETURNING " + jobColumns
	addJobs = "INSERT INTO rondo_jobs (queue, place, rank, position, id, priority, size, pushed_at, " +
		"ready_at, trace, item) VALUES "
	readyJobs = "SELECT " + jobColumns +
		" FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position >= $3 " +
		"ORDER BY position LIMIT $4"
	takeRange = "DELETE FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND " +
		"position BETWEEN $3 AND $4"
	// The range of all keeps databases from walking over all ready jobs, whatever they know of the
	// table.
	holdRanges = `UPDATE rondo_jobs SET place = 2, rank = r.lock, attempts = attempts + 1 FROM (%s) AS r
		WHERE queue = $1 AND place = 0 AND rank = $2 AND position BETWEEN $3 AND $4 AND position BETWEEN r.low AND r.high`
	dropJobs  = "DELETE FROM rondo_jobs WHERE queue = $1 AND place = 2 AND rank"
	moveJobs  = "UPDATE rondo_jobs SET rank = %d WHERE queue = $1 AND place = 2 AND rank = %d AND id"
	oldestJob = "SELECT ready_at FROM rondo_jobs WHERE queue = $1 AND place = 0 AND rank = $2 AND position " +
		">= $3 ORDER BY position LIMIT 1"
	// Jobs that were popped $5 times are dead. Those whose last $8 attempts do not count get a
	// reason, by which a delayed job without attempts is known as returned.
	returnJobs = `UPDATE rondo_jobs SET attempts = attempts - CAST($8 AS INT8),
		place = CASE WHEN attempts >= CAST($5 AS INT8) AND CAST($5 AS INT8) > 0 THEN 3 ELSE CAST($3 AS INT8) END,
		rank = CASE WHEN attempts >= CAST($5 AS INT8) AND CAST($5 AS INT8) > 0 THEN CAST($6 AS INT8) WHEN CAST($3 AS INT8) = 1 THEN CAST($4 AS INT8) ELSE priority END,
		reason = CASE WHEN CAST($8 AS INT8) > 0 OR attempts >= CAST($5 AS INT8) AND CAST($5 AS INT8) > 0 THEN CAST($7 AS TEXT) ELSE reason END
		WHERE queue = $1 AND place = 2 AND rank = $2 RETURNING place, priority, position`
	// The comparison is true of all. It has PostgreSQL follow the key, where it would read all
	// delayed jobs and sort them as long as it knows nothing of the table.
	dueJobs = `SELECT id, rank, position, priority, attempts > 0 OR reason IS NOT NULL FROM rondo_jobs
		WHERE queue = $1 AND place = 1 AND (rank, position) > (-1, -1) ORDER BY rank, position LIMIT $2`
	readyJob = `UPDATE rondo_jobs SET place = 0, rank = priority, position = $4, ready_at = CASE WHEN attempts = 0 AND reason IS NULL THEN $5 ELSE ready_at END
		WHERE queue = $1 AND place = 1 AND rank = $2 AND position = $3`
	deadJobs = "SELECT rank, reason, " + jobColumns + ` FROM rondo_jobs
		WHERE queue = $1 AND place = 3 AND (rank, position) > ($2, $3) ORDER BY rank, position LIMIT $4`
	deadPlaces = "SELECT rank, position, priority FROM rondo_jobs WHERE queue = $1 AND place = 3 AND (rank, " +
		"position) > (-1, -1) ORDER BY rank, position LIMIT $2"
	deadJob = "SELECT rank, position, priority FROM rondo_jobs WHERE queue = $1 AND place = 3 AND rank = " +
		"$2 AND position = $3"
	reviveJob = `UPDATE rondo_jobs SET place = 0, rank = priority, position = $4, attempts = 0, reason = NULL, ready_at = $5
		WHERE queue = $1 AND place = 3 AND rank = $2 AND position = $3`
	removeJobs = `DELETE FROM rondo_jobs WHERE queue = $1 AND (place, rank, position) IN (
		SELECT place, rank, position FROM rondo_jobs WHERE queue = $1 AND place >= $2 ORDER BY place, rank, position LIMIT $3) RETURNING place, priority`

	lockColumns = "lock_id, number, items, created_at, expires_at, returned"
	addLocks    = "INSERT INTO rondo_job_locks (queue, " + lockColumns + ") VALUES "
	findLocks   = "SELECT " + lockColumns + " FROM rondo_job_locks WHERE queue = $1 AND lock_id"
	changeLock  = "UPDATE rondo_job_locks SET expires_at = $3, returned = $4 WHERE queue = $1 AND lock_id = $2"
	removeLocks = "DELETE FROM rondo_job_locks WHERE queue = $1 AND lock_id"
	activeLocks = "SELECT " + lockColumns +
		" FROM rondo_job_locks WHERE queue = $1 AND returned = FALSE ORDER BY expires_at LIMIT $2"
	oldLocks = "SELECT " + lockColumns +
		" FROM rondo_job_locks WHERE queue = $1 AND returned = TRUE ORDER BY expires_at LIMIT $2"
	findQueueKeys = "SELECT key, digest, items, expires_at FROM rondo_job_keys WHERE queue = $1 AND key"
	addQueueKeys  = `INSERT INTO rondo_job_keys (queue, key, digest, items, expires_at) VALUES %s
		ON CONFLICT (queue, key) DO UPDATE SET digest = excluded.digest, items = excluded.items, expires_at = excluded.expires_at`
	oldQueueKeys = "SELECT key, expires_at FROM rondo_job_keys WHERE queue = $1 ORDER BY expires_at LIMIT $2"
	dropQueueKey = "DELETE FROM rondo_job_keys WHERE queue = $1 AND key = $2"

	// The first rows are found before they are removed, so that databases follow the keys in any
	// case, whatever they know of the tables.
	lastLock = "SELECT count(*), max(lock_id) FROM (SELECT lock_id FROM rondo_job_locks WHERE queue = $1 " +
		"ORDER BY lock_id LIMIT $2) AS first"
	forgetLocks = "DELETE FROM rondo_job_locks WHERE queue = $1 AND lock_id <= $2"
	lastKey     = "SELECT count(*), max(key) FROM (SELECT key FROM rondo_job_keys WHERE queue = $1 AND key > $2 " +
		"ORDER BY key LIMIT $3) AS first"
	forgetKeys = "DELETE FROM rondo_job_keys WHERE queue = $1 AND key > $2 AND key <= $3"
)

// forgetQueue are the statements that remove a queue after its jobs, locks and keys. The first two
// find no rows, unless an operator has written some by hand: a new queue must not find them.
var forgetQueue = []string{
	"DELETE FROM rondo_job_locks WHERE queue = $1",
	"DELETE FROM rondo_job_keys WHERE queue = $1",
	"DELETE FROM rondo_job_queues WHERE queue = $1",
}

// Statements lists the statements that read and change queues, for a look at how databases
// carry them out.
func Statements(d sqlrow.Dialect) []string {
	p := pending{d: d}
	addItem, _, _ := p.insertion([]addedJob{{}})
	addLock, _ := p.lockInsertion([]jobs.Lock{{}})
	addKey, _ := p.keyInsertion([]queueKey{{}})
	hold, _ := p.holding(make([]move, 2))
	of := func(statement string) string {
		text, _ := listed(d, "", statement, []string{"", ""})
		return text
	}
	var front []string
	if !d.ReadFirst {
		front = []string{takeJobs, holdJobs}
	}
	return slices.Concat([]string{
		fmt.Sprintf(readQueue, "") + d.Lock, newQueue, dropNewQueue, saveQueue,
		fmt.Sprintf(readQueue, ", clock_timestamp()"),
		fmt.Sprintf(listQueues, "") + pageOfQueues, fmt.Sprintf(listQueues, "") + startingQueues,
		addItem, oldestJob, sizesOfJobs, readyJobs,
	}, front, []string{
		takeRange, hold, of(dropJobs),
		of(fmt.Sprintf(moveJobs, 2, 1)), returnJobs, dueJobs, readyJob, deadJobs, deadPlaces, deadJob,
		reviveJob, removeJobs,
		addLock, of(findLocks), changeLock, of(removeLocks), activeLocks, oldLocks, of(findQueueKeys), addKey,
		oldQueueKeys, dropQueueKey, lastLock, forgetLocks, lastKey, forgetKeys,
	}, forgetQueue)
}
