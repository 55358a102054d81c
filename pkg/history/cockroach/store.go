// Package cockroach is the store on CockroachDB and on PostgreSQL, with the same statements for
// both.
//
// # The tables, and why none of them is a hot spot on CockroachDB
//
// CockroachDB splits tables into ranges of neighbouring keys, and each range is written to by one
// node. Keys that grow with time or that count up make the last range the one that takes all
// writes, and splitting cannot help (https://www.cockroachlabs.com/docs/stable/understand-hotspots,
// https://www.cockroachlabs.com/docs/stable/hash-sharded-indexes). Here every key has a shard near
// its front, a hash of the instance's id ([history.ShardOf]), as an ordinary column, so that
// PostgreSQL and CockroachDB need no different statements:
//
//	rondo_instances   (shard, instance)                            ids that count up are spread over 16 places
//	  by_status       (status, shard, created_at, instance)        the newest of a status are at 16 places, too
//	  by_name         (name, status, shard, created_at, instance)  likewise
//	  by_parent       (parent_instance, created_at, instance)      one place for the children of one parent, whose
//	                                                               row is at one place anyway
//	  by_wake         (shard, wake_at, instance)                   times are spread over 16 places
//	rondo_history     (shard, instance, execution, event)          as instances
//	rondo_executions  (shard, instance, execution)                 as instances
//	rondo_values      (shard, instance, key)                       as instances
//	rondo_attributes  (name, value, shard, created_at, instance)   the newest with one value are at 16 places
//	rondo_outbox      (shard, id)                                  each process writes to a shard of its own, a
//	                                                               few hundred rows a second
//	rondo_marks       (name, shard)                                48 rows, each written about once a minute
//	rondo_schedules   (id)                                         thousands of rows, some writes a second
//	  by_wake         (wake_at, id)                                likewise
//	rondo_job_queues  (queue)                                      a row for each queue, locked by each change of
//	                                                               the queue
//	rondo_jobs        (queue, place, rank, position)               each queue is at a place of its own; so are
//	                                                               its locks and keys
//
// Deleted rows stay in CockroachDB until they are garbage collected (gc.ttlseconds, four hours by
// default), and a scan walks over them. That matters for the outbox, where every row is deleted,
// and for the index by wake_at, where every turn may move a row. So rows of the outbox are deleted
// by their exact keys, both are only swept and counted from a remembered lower bound on
// (rondo_marks), and wake_at is rounded up to whole steps ([Options].WakeStep), so that most turns
// leave it where it is. On PostgreSQL that makes most updates of an instance ones that touch no
// index.
//
// # The commit
//
// A usual batch is two statements that are sent together and are one transaction: one inserts the
// instances that begin, the other takes further those that go on, by an INSERT … ON CONFLICT DO
// UPDATE whose WHERE compares where each instance stands with the version of its turn. The rows
// that they return filter the rows of history and outbox that the other parts of the same statement
// insert. So the whole batch takes one round trip and one commit, CockroachDB can try it again by
// itself, and PostgreSQL needs no plan that depends on statistics. Instances are in the order of
// their keys, and those that begin come first, so that two batches cannot wait for each other.
//
// A batch with something rarer in it (children that begin, attributes, values, former executions)
// is one statement that can do all of that; so are the turns that begin instances where another
// process has just begun one, or where a tombstone is. Batches that are large, or that remove
// something, are a transaction of several statements with the same effect (crdb.ExecuteInTx).
package cockroach

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/x/bounded"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/sqladmin"
	"github.com/rondo-run/rondo/pkg/history/internal/sqljobs"
	"github.com/rondo-run/rondo/pkg/history/internal/sqlrow"
)

// Options are the settings of a store. The zero value is good for production.
type Options struct {
	// Schema sets whether Open brings the tables up to date, which needs a role that may change
	// them, or only checks that they are.
	Schema SchemaMode
	// ReadOnly makes the database refuse all writes, and only checks the tables. Methods that write
	// then fail.
	ReadOnly bool
	// MaxConns bounds the connections of the pool; 0 means 8, unless the address says otherwise
	// (pool_max_conns).
	MaxConns int
	// StatementTimeout bounds each statement on the server; 0 means 30 seconds.
	StatementTimeout time.Duration
	// ConnectTimeout bounds how long Open waits for a server that does not answer: until it is
	// connected, and again for each of the first statements; 0 means 30 seconds. If the hosts of
	// the address may take longer, by its connect_timeout, Open waits as long.
	ConnectTimeout time.Duration
	// WakeStep is what wake-up times are rounded up to; 0 means 10 seconds. It is how much later
	// than necessary a lost message may be noticed.
	WakeStep time.Duration
	// SingleStatement bounds the size of a batch that is committed in one statement; 0 means 4 MiB.
	// CockroachDB refuses messages of 16 MiB and more.
	SingleStatement int
	// Observer gets the operations; nil means none.
	Observer history.Observer
	// Now is the clock; nil means [time.Now], and the database's for queues.
	Now func() time.Time
	// Log gets warnings for the operator; nil means [slog.Default].
	Log *slog.Logger
	// Configure changes the connection's settings before the pool is made, for what an address
	// cannot say.
	Configure func(*pgxpool.Config)
}

// SchemaMode sets whether Open changes the tables.
type SchemaMode int

// The modes.
const (
	Migrate SchemaMode = iota // bring them up to date
	Verify                    // check them, for a role that may not change them
)

func (o Options) withDefaults() Options {
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	or(&o.StatementTimeout, 30*time.Second)
	or(&o.ConnectTimeout, 30*time.Second)
	or(&o.WakeStep, 10*time.Second)
	if o.SingleStatement == 0 {
		o.SingleStatement = 4 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Store is a store on CockroachDB or PostgreSQL. Its parts are small stores for a share of the
// contract each; what they have in common is the database and the marks.
type Store struct {
	*sqladmin.Admin
	*sqladmin.Systems
	*sqladmin.Schedules
	*loader
	*committer
	*outbox
	*wakes

	db     *database
	log    *slog.Logger
	queues *sqljobs.Queues
}

var (
	_ history.Store  = (*Store)(nil)
	_ history.Pooled = (*Store)(nil)
)

// Pool implements [history.Pooled].
func (s *Store) Pool() history.Pool {
	x := s.db.pool.Stat()
	return history.Pool{
		Used: int(x.AcquiredConns()), Idle: int(x.IdleConns()), Limit: int(x.MaxConns()), Waits: x.EmptyAcquireCount(),
		Waited: x.EmptyAcquireWaitTime(),
	}
}

// Queues is where the queues are.
func (s *Store) Queues() jobs.Store { return s.queues }

// flavour is which of the two databases it is.
type flavour int

const (
	postgres flavour = iota + 1
	cockroachdb

	// noCommit is the database of no commit, for class.
	noCommit flavour = 0
)

func (f flavour) String() string {
	if f == cockroachdb {
		return "CockroachDB"
	}
	return "PostgreSQL"
}

// dialect is how both databases differ from others.
var dialect = sqlrow.Dialect{Shards: history.Shards, Time: func(t time.Time) any { return t }, Lock: " FOR UPDATE",
	Clock: "clock_timestamp()", Garbage: true}

// queueDialect is how one of the databases differs in the statements of queues.
func (f flavour) queueDialect() sqlrow.Dialect {
	d := dialect
	// CockroachDB executes a subquery before it scans, and does not bound the scan by the result
	// (https://github.com/cockroachdb/cockroach/issues/93829).
	d.ReadFirst = f == cockroachdb
	return d
}

// Open connects to the database at an address like
// postgres://user@host:26257/rondo?sslmode=verify-full, as pgx reads them, and brings its tables up
// to date or checks them.
func Open(ctx context.Context, address string, options Options) (*Store, error) {
	clock := options.Now
	options = options.withDefaults()
	config, connectTimeout, err := poolConfig(address, options)
	if err != nil {
		return nil, err
	}
	options.ConnectTimeout = connectTimeout
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fail("open the database", history.Permanent, err)
	}
	db := newDatabase(pool, options)
	s, err := start(ctx, db, options, clock)
	if err != nil {
		db.close(options.Log)
		return nil, err
	}
	return s, nil
}

func newDatabase(pool *pgxpool.Pool, options Options) *database {
	return &database{pool: pool, observer: sqlrow.Observer(options.Observer), readOnly: options.ReadOnly}
}

// start identifies the server, looks after the tables, and makes the store.
func start(ctx context.Context, db *database, options Options, clock func() time.Time) (*Store, error) {
	if err := db.identify(ctx, options.ConnectTimeout); err != nil {
		return nil, err
	}
	m := newMigrator(db, options)
	check := m.verify
	if options.Schema == Migrate && !options.ReadOnly {
		check = m.migrate
	}
	if err := check(ctx); err != nil {
		return nil, err
	}
	marks := newMarks(db, options)
	if err := db.answered(ctx, options.ConnectTimeout, marks.read); err != nil {
		return nil, err
	}
	return newStore(db, marks, options, clock), nil
}

// newStore makes a store of its parts. Queues have a clock of their own, nil for the database's.
func newStore(db *database, marks *marks, options Options, clock func() time.Time) *Store {
	prepared := statementsFor(db.flavour)
	loader := &loader{db, prepared.rows, prepared.events}
	ids := &outboxIDs{marks, int16(rand.N(history.Shards)), rand.Uint64, options.Now}
	return &Store{
		Admin:     sqladmin.New(dialect, db, db.observer, options.Now, ids.key),
		Systems:   sqladmin.NewSystems(dialect, db, db.observer, options.Now),
		Schedules: sqladmin.NewSchedules(dialect, db, db.observer, ids.key, rand.Uint64),
		loader:    loader,
		committer: &committer{db, loader, marks, ids, prepared, options.SingleStatement},
		outbox:    &outbox{db, marks, options.Now},
		wakes:     &wakes{db, marks},
		db:        db,
		log:       options.Log,
		queues:    sqljobs.NewQueues(db.flavour.queueDialect(), db, clock),
	}
}

// identify connects to the server, and finds out which of the two databases it is.
func (d *database) identify(ctx context.Context, timeout time.Duration) error {
	connecting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := retry(connecting, func() error {
		conn, err := d.pool.Acquire(connecting)
		if err != nil {
			return fail("connect to the database", class(err, noCommit), err)
		}
		defer conn.Release()
		d.flavour = flavourOf(conn.Conn())
		return nil
	})
	if err != nil && connecting.Err() != nil {
		to := d.pool.Config().ConnConfig
		return fmt.Errorf("%w (gave up after %v; does a server listen at %s, and can this machine reach it?)", err,
			timeout, hostPort(to.Host, to.Port))
	}
	return err
}

// answered calls f, and ends its context after the timeout. A server, or a proxy in front of it,
// may accept a connection and never answer its statements, which no time limit of the server ends.
func (d *database) answered(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := f(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		to := d.pool.Config().ConnConfig
		return fmt.Errorf("%w (gave up after %v; the server at %s accepts connections, and does not answer)", err,
			timeout, hostPort(to.Host, to.Port))
	}
	return err
}

func flavourOf(conn *pgx.Conn) flavour {
	if conn.PgConn().ParameterStatus("crdb_version") != "" {
		return cockroachdb
	}
	return postgres
}

// poolConfig makes the pool's settings of an address and options. It also returns how long to wait
// for a server.
func poolConfig(address string, options Options) (config *pgxpool.Config, connectTimeout time.Duration, err error) {
	config, err = pgxpool.ParseConfig(address)
	if err != nil {
		return nil, 0, unreadable(address)
	}
	connectTimeout = max(options.ConnectTimeout, connectsWithin(config.ConnConfig))
	switch {
	case options.MaxConns > 0:
		config.MaxConns = int32(options.MaxConns)
	case !strings.Contains(address, "pool_max_conns"):
		config.MaxConns = 8
	}
	params := config.ConnConfig.RuntimeParams
	set := func(name, value string) {
		if _, ok := params[name]; !ok && !strings.Contains(params["options"], name) {
			params[name] = value
		}
	}
	if options.ReadOnly {
		params["default_transaction_read_only"] = "on"
	}
	set("application_name", "rondo")
	set("statement_timeout", fmt.Sprint(options.StatementTimeout.Milliseconds()))
	set("idle_in_transaction_session_timeout", fmt.Sprint(options.StatementTimeout.Milliseconds()))
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	// A server that refuses writes may have become a standby. The pool would use the connection for
	// an hour, although the address leads to another server by now.
	keeps := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != readOnly && keeps(conn, err)
	}
	// The pool goes on to connect when the caller has given up, so each connection has a limit of
	// its own. ConnectTimeout ends at the login.
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, conn.Config().ConnectTimeout)
		defer cancel()
		return prepareSession(ctx, conn)
	}
	config.PrepareConn = preparePlans
	if options.Configure != nil {
		options.Configure(config)
	}
	return config, connectTimeout, nil
}

// connectsWithin is how long connecting to one of the hosts of an address may take, by its
// connect_timeout, which is for each host; 0 if the address has none.
func connectsWithin(config *pgx.ConnConfig) time.Duration {
	hosts := map[string]bool{hostPort(config.Host, config.Port): true}
	for _, f := range config.Fallbacks { // they include the same hosts without TLS
		hosts[hostPort(f.Host, f.Port)] = true
	}
	return time.Duration(len(hosts)) * config.ConnectTimeout
}

func hostPort(host string, port uint16) string { return net.JoinHostPort(host, fmt.Sprint(port)) }

const (
	postgresSession = "SET default_transaction_isolation = 'read committed'; SET enable_seqscan = off; " +
		"SET jit = off; " + keptPlans + "; " + writtenSoon
	cockroachSession = "SET default_transaction_isolation = 'serializable'; SET plan_cache_mode = force_custom_plan"
)

// prepareSession makes plans and isolation independent of how the database is configured.
func prepareSession(ctx context.Context, conn *pgx.Conn) error {
	takePacked(conn)
	if flavourOf(conn) == cockroachdb {
		// A generic plan cannot use an index for a list of parameters.
		_, err := conn.Exec(ctx, cockroachSession)
		return err
	}
	// A statement is planned once and kept. A plan that was made while a table was small must still
	// be good when it has grown, so it may not read whole tables.
	_, err := conn.Exec(ctx, postgresSession)
	return err
}

// writtenSoon keeps pages that a connection moves out of PostgreSQL's buffers from lying in the
// system's, which would write all that is half a minute old at once: hundreds of megabytes, with
// each commit behind them. A setting of the server, the database, the role or the address wins; a
// server that does not know the setting goes without.
const writtenSoon = "SELECT set_config(name, '256kB', false) FROM pg_settings WHERE name = 'backend_flush_after' " +
	"AND source = 'default'"

// On PostgreSQL, statements that stay prepared are planned once, with plans for any parameters: for
// a commit of one turn, planning takes four times as long as all the rest, and by itself PostgreSQL
// would often go on to plan each time. All others are planned for the parameters at hand.
const (
	keptPlans = "SET plan_cache_mode = force_generic_plan"
	ownPlans  = "SET plan_cache_mode = force_custom_plan"
)

type planKey struct{}

// plannedEach marks a context for statements that are not worth preparing.
func plannedEach(ctx context.Context) context.Context { return context.WithValue(ctx, planKey{}, true) }

// preparePlans has a connection that is about to be used plan as the context says. Most often it
// does already.
func preparePlans(ctx context.Context, conn *pgx.Conn) (bool, error) {
	if flavourOf(conn) == cockroachdb {
		return true, nil
	}
	own, data := ctx.Value(planKey{}) != nil, conn.PgConn().CustomData()
	if is, _ := data["own plans"].(bool); is == own {
		return true, nil
	}
	set := keptPlans
	if own {
		set = ownPlans
	}
	if _, err := conn.Exec(ctx, set); err != nil {
		return false, err
	}
	data["own plans"] = own
	return true, nil
}

// closeFor bounds how long a store waits for its connections when it is closed. A connection whose
// statement was given up needs 15 seconds if the server hangs.
const closeFor = 2 * time.Second

// Close closes the connections. It waits 2 seconds at most for a server that does not answer, and
// for callers that still use the store.
func (s *Store) Close() error {
	s.db.close(s.log)
	return nil
}

func (d *database) close(log *slog.Logger) {
	if !bounded.Wait(closeFor, d.pool.Close) {
		log.Warn("connections of the database are still in use; not waiting for them any longer", "for", closeFor)
	}
}

// Ping implements [history.Store].
func (s *Store) Ping(ctx context.Context) (err error) {
	defer s.db.observer.Begin("ping").End(&err)
	err = s.db.pool.Ping(ctx)
	return fail("reach the database", class(err, noCommit), err)
}

// Clock implements [history.Store].
func (s *Store) Clock(ctx context.Context) (now time.Time, err error) {
	defer s.db.observer.Begin("clock").End(&err)
	err = s.db.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	return now.UTC(), fail("read the clock of the database", class(err, noCommit), err)
}
