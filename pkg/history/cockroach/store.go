// Package cockroach is the store on CockroachDB and on PostgreSQL, with the same statements for
// both.
//
// # The tables, and why none of them is a hot spot on CockroachDB
//
// CockroachDB splits tables into ranges of neighbouring keys, and each range is written to by one
// node. Keys that grow with time or that count up make the last range the one that everybody writes
// to, and splitting cannot help (https://www.cockroachlabs.com/docs/stable/understand-hotspots,
// https://www.cockroachlabs.com/docs/stable/hash-sharded-indexes). Here every key has a shard near
// its front, a hash of the instance's id ([history.ShardOf]), as an ordinary column, so that
// PostgreSQL and CockroachDB need no different statements:
//
//	rondo_instances   (shard, instance)                            ids that count up are spread over 16 places
//	  by_status       (status, shard, created_at, instance)        the newest of a status are at 16 places, too
//	  by_name         (name, status, shard, created_at, instance)  likewise
//	  by_parent       (parent_instance, created_at, instance)      one place for the children of one parent, who
//	                                                               is written to at one place anyway
//	  by_wake         (shard, wake_at, instance)                   times are spread over 16 places
//	rondo_history     (shard, instance, execution, event)          as instances
//	rondo_executions  (shard, instance, execution)                 as instances
//	rondo_values      (shard, instance, key)                       as instances
//	rondo_attributes  (name, value, shard, created_at, instance)   the newest with one value are at 16 places
//	rondo_outbox      (shard, id)                                  each process writes to a shard of its own, a
//	                                                               few hundred rows a second
//	rondo_marks       (name, shard)                                48 rows, each written about once a minute
//	rondo_queues      (queue)                                      a row for each queue, held by whoever changes
//	                                                               anything of it
//	rondo_queue_items (queue, place, rank, position)               each queue is at a place of its own; so are
//	                                                               its locks and keys
//
// Deleted rows stay in CockroachDB until they are garbage collected (gc.ttlseconds, four hours by
// default), and a scan walks over them. That matters for the outbox, where every row is deleted,
// and for the index by wake_at, where every turn may move a row. So rows of the outbox are deleted
// by their exact keys, both are only swept from a remembered lower bound on (rondo_marks), and
// wake_at is rounded up to whole steps ([Options].WakeStep), so that most turns leave it where it
// is. On PostgreSQL that makes most updates of an instance ones that touch no index.
//
// # The commit
//
// A usual batch is two statements that are sent together and are one transaction: one inserts the
// instances that begin, the other takes further those that go on, by an INSERT … ON CONFLICT DO
// UPDATE whose WHERE compares where each instance stands with what its turn was decided on. What
// they return filters the rows of history and promises that the other parts of the same statement
// insert. So the whole batch takes one round trip and one commit, CockroachDB can try it again by
// itself, and PostgreSQL needs no plan that depends on statistics. Instances are in the order of
// their keys, and those that begin come first, so that two batches cannot wait for each other.
//
// A batch with something rarer in it (children that begin, attributes, values, former executions)
// is one statement that can do all of that; so are the turns that begin instances where somebody
// else has just begun one, or where a tombstone is. Batches that are large, or that remove
// something, are a transaction of several statements with the same effect (crdb.ExecuteInTx).
package cockroach

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/internal/relational"
)

// Options are the settings of a store. The zero value is good for production.
type Options struct {
	// Schema says what to do about the tables: bring them up to date, which needs a role that may,
	// or only check that they are.
	Schema SchemaMode
	// ReadOnly has the database refuse whatever would change it, and only checks the tables.
	// Methods that write then fail.
	ReadOnly bool
	// MaxConns bounds the connections of the pool; 0 means 8, unless the address says otherwise
	// (pool_max_conns).
	MaxConns int
	// StatementTimeout bounds each statement on the server; 0 means 30 seconds.
	StatementTimeout time.Duration
	// ConnectTimeout bounds how long Open waits for a server that does not answer; 0 means 30
	// seconds.
	ConnectTimeout time.Duration
	// WakeStep is what wake-up times are rounded up to; 0 means 10 seconds. It is how much later
	// than necessary a lost message may be noticed.
	WakeStep time.Duration
	// SingleStatement bounds the size of a batch that is committed in one statement; 0 means 4 MiB.
	// CockroachDB refuses messages of 16 MiB and more.
	SingleStatement int
	// Now is the clock; nil means [time.Now], and the database's for queues.
	Now func() time.Time
	// Log gets what somebody should know; nil means [slog.Default].
	Log *slog.Logger
	// Configure changes the connection's settings before the pool is made, for what an address
	// cannot say.
	Configure func(*pgxpool.Config)
}

// SchemaMode says what Open does about the tables.
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

// Store is a store on CockroachDB or PostgreSQL.
type Store struct {
	*relational.Admin
	pool    *pgxpool.Pool
	options Options
	flavour flavour
	shard   int16 // where this process keeps its promises
	random  func() uint64

	statements statements
	marks      marks
	queues     *relational.Queues
}

var (
	_ history.Store  = (*Store)(nil)
	_ history.Pooled = (*Store)(nil)
)

// Pool implements [history.Pooled].
func (s *Store) Pool() history.Pool {
	x := s.pool.Stat()
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
)

func (f flavour) String() string {
	if f == cockroachdb {
		return "CockroachDB"
	}
	return "PostgreSQL"
}

// dialect is how both databases differ from others.
var dialect = relational.Dialect{Shards: history.Shards, Time: func(t time.Time) any { return t }, Lock: " FOR UPDATE"}

// Open connects to the database at an address like
// postgres://user@host:26257/rondo?sslmode=verify-full, as pgx reads them, and brings its tables up
// to date or checks them.
func Open(ctx context.Context, address string, options Options) (*Store, error) {
	clock := options.Now
	options = options.withDefaults()
	config, err := poolConfig(address, options)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fail("open the database", history.Permanent, err)
	}
	s := &Store{pool: pool, options: options, shard: int16(rand.N(history.Shards)), random: rand.Uint64}
	s.Admin = &relational.Admin{
		Dialect:    dialect,
		Transactor: transactor{s},
		Now:        options.Now,
	}
	s.queues = relational.NewQueues(dialect, transactor{s}, clock)
	if err := s.start(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

// start finds out what is at the other end.
func (s *Store) start(ctx context.Context) error {
	connecting, cancel := context.WithTimeout(ctx, s.options.ConnectTimeout)
	defer cancel()
	err := retry(connecting, func() error {
		conn, err := s.pool.Acquire(connecting)
		if err != nil {
			return fail("connect to the database", class(err, false), err)
		}
		defer conn.Release()
		s.flavour = flavourOf(conn.Conn())
		return nil
	})
	if err != nil && connecting.Err() != nil {
		to := s.pool.Config().ConnConfig
		return fmt.Errorf("%w (gave up after %v; does a server listen at %s, and can this machine reach it?)", err,
			s.options.ConnectTimeout,
			net.JoinHostPort(to.Host, fmt.Sprint(to.Port)))
	}
	if err != nil {
		return err
	}
	if s.options.Schema == Migrate && !s.options.ReadOnly {
		err = s.migrate(ctx)
	} else {
		err = s.verify(ctx)
	}
	if err != nil {
		return err
	}
	s.statements = statementsFor(s.flavour)
	return s.readMarks(ctx)
}

func flavourOf(conn *pgx.Conn) flavour {
	if conn.PgConn().ParameterStatus("crdb_version") != "" {
		return cockroachdb
	}
	return postgres
}

// poolConfig makes the pool's settings of an address and options.
func poolConfig(address string, options Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, unreadable(address)
	}
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
	config.AfterConnect = prepareSession
	config.PrepareConn = preparePlans
	if options.Configure != nil {
		options.Configure(config)
	}
	return config, nil
}

const cockroachSession = "SET default_transaction_isolation = 'serializable'; SET plan_cache_mode = force_custom_plan"

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
	_, err := conn.Exec(ctx,
		"SET default_transaction_isolation = 'read committed'; SET enable_seqscan = off; SET jit = off; "+keptPlans+
			"; "+writtenSoon)
	return err
}

// writtenSoon keeps pages that a connection moves out of PostgreSQL's buffers from lying in the
// system's, which would write all that is half a minute old at once: hundreds of megabytes, with
// each commit behind them. Whoever has said for the server, the database, the role or in the
// address how it is to be has it so; a server that does not know the setting goes without.
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

// Close closes the connections.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// Ping implements [history.Store].
func (s *Store) Ping(ctx context.Context) error {
	err := s.pool.Ping(ctx)
	return fail("reach the database", class(err, false), err)
}

// ---- Where sweeps begin.

// marks are remembered lower bounds: nothing that a sweep looks for is below them.
type marks struct {
	mu    sync.Mutex
	value map[string][]time.Time // by name and shard
}

// The names of the marks.
const (
	markOutbox = "outbox"
	markWake   = "wake"
)

// markSlack is how far behind the clock a mark stays. It must be longer than a commit may take, and
// than clocks may differ.
const markSlack = 10 * time.Minute

// markStep is how far a mark must have moved to be written down.
const markStep = time.Minute

const (
	readMarks    = "SELECT name, shard, value FROM rondo_marks"
	advanceMarks = `INSERT INTO rondo_marks AS m (name, shard, value) SELECT $1::TEXT, shard, value FROM unnest($2::INT2[], $3::INT8[]) AS r(shard, value)
	ON CONFLICT (name, shard) DO UPDATE SET value = excluded.value WHERE m.value < excluded.value`
)

func (s *Store) readMarks(ctx context.Context) error {
	return s.ReadOften(ctx, "read marks", func(db relational.DB) error {
		fresh := map[string][]time.Time{markOutbox: make([]time.Time, history.Shards),
			markWake: make([]time.Time, history.Shards)}
		err := db.Query(ctx, func(r relational.Row) error {
			var (
				name         string
				shard, value int64
			)
			err := r.Scan(&name, &shard, &value)
			if at := fresh[name]; shard >= 0 && int(shard) < len(at) {
				at[shard] = time.UnixMicro(value)
			}
			return err
		}, readMarks)
		if err == nil {
			s.marks.mu.Lock()
			s.marks.value = fresh
			s.marks.mu.Unlock()
		}
		return err
	})
}

// mark is where a sweep of a shard begins.
func (s *Store) mark(name string, shard int16) time.Time {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	return s.marks.value[name][shard]
}

// notBefore moves a time that lies below a mark to where the sweep finds it. Marks follow the
// clocks of all processes, so a clock that is far behind is noticed here.
func (s *Store) notBefore(name string, shard int16, at time.Time) time.Time {
	if low := s.mark(name, shard); !low.IsZero() && at.Before(low.Add(markSlack)) {
		return low.Add(markSlack)
	}
	return at
}

// atMost keeps a mark behind the clock.
func (s *Store) atMost(to time.Time) time.Time {
	if limit := s.options.Now().Add(-markSlack); to.After(limit) {
		return limit
	}
	return to
}

// worthAdvancing reports whether a mark would move far enough.
func (s *Store) worthAdvancing(name string, shard int16, to time.Time) bool {
	return s.atMost(to).Sub(s.mark(name, shard)) >= markStep
}

// advance moves marks up to moments, where that is worth it, but not nearer to now than the slack.
func (s *Store) advance(ctx context.Context, name string, marks map[int16]time.Time) error {
	var shards []int16
	var values []int64
	for shard := range int16(history.Shards) {
		if to, ok := marks[shard]; ok && s.worthAdvancing(name, shard, to) {
			marks[shard] = s.atMost(to)
			shards, values = append(shards, shard), append(values, marks[shard].UnixMicro())
		}
	}
	if len(shards) == 0 {
		return nil
	}
	err := s.writeKept(ctx, "advance marks", func(db relational.DB) error {
		_, err := db.Exec(ctx, advanceMarks, name, shards, values)
		return err
	})
	if err == nil {
		s.marks.mu.Lock()
		for _, shard := range shards {
			if at := s.marks.value[name]; at[shard].Before(marks[shard]) {
				at[shard] = marks[shard]
			}
		}
		s.marks.mu.Unlock()
	}
	return err
}
