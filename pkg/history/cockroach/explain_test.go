package cockroach

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// explainer looks at each statement right before a connection sends it: on that connection, so with
// its settings, with the same parameters and in the same transaction, it lets PostgreSQL explain
// and carry it out, and rolls that back.
type explainer struct {
	t    *testing.T
	seen []*seen // since the last look, one for each text
	// early are statements that were prepared under these names, and planned, while the tables were
	// empty.
	early map[string]string
	n     int
}

// seen is a statement that was sent, perhaps several times with different parameters.
type seen struct {
	kind, sql string
	plans     []explained
}

// explained is one plan of a statement, and the cost of its execution.
type explained struct {
	how     string // how it was planned
	root    planNode
	indexes []string // those that are used, and "whole TABLE" for a table that is read as a whole
	rows    int      // read from tables and indexes, filtered out or not
	blocks  int      // of 8 KiB
}

// early is how a plan was made that comes after the generic plan that is made now.
const early = "generic, made while the tables were empty"

// planNode is a part of a plan, as far as it matters here.
type planNode struct {
	Type     string     `json:"Node Type"`
	Table    string     `json:"Relation Name"`
	Index    string     `json:"Index Name"`
	Cond     string     `json:"Index Cond"`
	Cost     float64    `json:"Total Cost"`
	Rows     float64    `json:"Actual Rows"`
	Loops    float64    `json:"Actual Loops"`
	Filtered float64    `json:"Rows Removed by Filter"`
	Recheck  float64    `json:"Rows Removed by Index Recheck"`
	Joined   float64    `json:"Rows Removed by Join Filter"`
	Hit      int        `json:"Shared Hit Blocks"`
	Read     int        `json:"Shared Read Blocks"`
	Parts    []planNode `json:"Plans"`
}

func (x *explainer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	x.look(ctx, conn, q.SQL, q.Args)
	return ctx
}

func (x *explainer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (x *explainer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	for _, q := range b.Batch.QueuedQueries {
		x.look(ctx, conn, q.SQL, q.Arguments)
	}
	return ctx
}

func (x *explainer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (x *explainer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

var explainable = regexp.MustCompile(`(?s)^\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b`)

// Numbers and lists of them are what differs between statements that are the same for different
// shards and for more or fewer instances.
var number, numbers = regexp.MustCompile(`\b\d+\b`),
	regexp.MustCompile(`(\(N, (\$N|CAST\(\$N AS TEXT\))\), |\$N, |UNION ALL .*\n)+`)

func kindOf(sql string) string {
	return numbers.ReplaceAllString(number.ReplaceAllString(sql, "N"), "")
}

// look explains a statement. It speaks to the connection below pgx, which then traces nothing of
// it.
func (x *explainer) look(ctx context.Context, conn *pgx.Conn, sql string, args []any) {
	if x.t == nil || !explainable.MatchString(sql) {
		return
	}
	x.t.Helper()
	ways := []string{"custom"}
	if len(args) > 0 {
		mode, ok := args[0].(pgx.QueryExecMode)
		if ok {
			args = args[1:]
		}
		if mode != pgx.QueryExecModeCacheDescribe { // with that, it is planned for each execution
			ways = append(ways, "generic")
		}
	}
	x.n++
	name := fmt.Sprintf("explained_%d", x.n)
	prepared, err := conn.PgConn().Prepare(ctx, name, sql, nil)
	if err != nil {
		x.t.Fatalf("%v:\n%s", err, sql)
	}
	values := make([]string, len(args))
	for i, arg := range args {
		if first, ok := arg.(firstPacked); ok {
			arg = first.packed
		}
		if p, ok := arg.(packed); ok {
			if t, known := conn.TypeMap().TypeForOID(prepared.ParamOIDs[i]); known {
				arg, err = t.Codec.DecodeValue(conn.TypeMap(), t.OID, pgtype.BinaryFormatCode, p(nil))
			}
			if err != nil {
				x.t.Fatalf("parameter %d: %v:\n%s", i+1, err, sql)
			}
		}
		text, err := conn.TypeMap().Encode(prepared.ParamOIDs[i], pgtype.TextFormatCode, arg, []byte{})
		if err != nil {
			x.t.Fatalf("parameter %d: %v:\n%s", i+1, err, sql)
		}
		values[i] = "NULL"
		if text != nil {
			values[i] = "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
		}
	}
	execute := ""
	if len(values) > 0 {
		execute = "(" + strings.Join(values, ", ") + ")"
	}
	s := x.of(sql)
	for _, way := range ways {
		s.plans = append(s.plans, x.explain(ctx, conn, way, name+execute, sql))
	}
	if name := x.early[sql]; name != "" {
		p := x.explain(ctx, conn, "generic", name+execute, sql)
		p.how = early
		s.plans = append(s.plans, p)
	}
	x.exec(ctx, conn, "DEALLOCATE "+name)
}

// of finds the plans of a statement so far.
func (x *explainer) of(sql string) *seen {
	kind := kindOf(sql)
	for _, s := range x.seen {
		if s.kind == kind {
			return s
		}
	}
	s := &seen{kind: kind, sql: sql}
	x.seen = append(x.seen, s)
	return s
}

// explain carries out a prepared statement and takes it back.
func (x *explainer) explain(ctx context.Context, conn *pgx.Conn, way, execute, sql string) explained {
	x.t.Helper()
	before, after := "BEGIN", "ROLLBACK"
	if conn.PgConn().TxStatus() != 'I' {
		before, after = "SAVEPOINT explained", "ROLLBACK TO SAVEPOINT explained; RELEASE SAVEPOINT explained"
	}
	x.exec(ctx, conn, before+"; SET LOCAL plan_cache_mode = force_"+way+"_plan")
	var plans []struct{ Plan planNode }
	err := json.Unmarshal(x.exec(ctx, conn, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE "+execute),
		&plans)
	if err != nil || len(plans) != 1 {
		x.t.Fatalf("%v:\n%s", err, sql)
	}
	x.exec(ctx, conn, after)
	p := explained{how: way, root: plans[0].Plan, blocks: plans[0].Plan.Hit + plans[0].Plan.Read}
	p.collect(p.root)
	slices.Sort(p.indexes)
	p.indexes = slices.Compact(p.indexes)
	return p
}

// collect sums up what a part of a plan reads.
func (p *explained) collect(n planNode) {
	table := strings.HasPrefix(n.Table, "rondo_")
	switch {
	case strings.Contains(n.Type, "Scan") && n.Index != "" && n.Cond == "":
		// an index is read as a whole instead of the table
		p.indexes = append(p.indexes, "whole "+short(n.Index))
	case strings.Contains(n.Type, "Scan") && n.Index != "":
		p.indexes = append(p.indexes, short(n.Index))
	case strings.Contains(n.Type, "Scan") && table && n.Type != "Bitmap Heap Scan":
		p.indexes = append(p.indexes, "whole "+short(n.Table))
	}
	if table && strings.Contains(n.Type, "Scan") {
		p.rows += int((n.Rows + n.Filtered + n.Recheck) * max(n.Loops, 1))
	}
	for _, part := range n.Parts {
		p.collect(part)
	}
}

// short leaves out what all names have in common.
func short(name string) string { return strings.TrimPrefix(name, "rondo_") }

// exec runs statements with the simple protocol, and gives the first column of the last row.
func (x *explainer) exec(ctx context.Context, conn *pgx.Conn, sql string) (last []byte) {
	x.t.Helper()
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		x.t.Fatalf("%v:\n%.2000s", err, sql)
	}
	for _, r := range results {
		for _, row := range r.Rows {
			last = row[0]
		}
	}
	return last
}

// String prints a plan, for messages.
func (n planNode) String() string {
	var b strings.Builder
	var walk func(n planNode, depth int)
	walk = func(n planNode, depth int) {
		fmt.Fprintf(&b, "%s%s %s", strings.Repeat("  ", depth), n.Type, cmp.Or(n.Index, n.Table))
		if n.Cond != "" {
			fmt.Fprintf(&b, " %s", n.Cond)
		}
		fmt.Fprintf(&b, " (cost %.0f, %.0f rows x %.0f, %.0f left out, %d blocks)\n", n.Cost, n.Rows, n.Loops,
			n.Filtered+n.Recheck+n.Joined, n.Hit+n.Read)
		for _, part := range n.Parts {
			walk(part, depth+1)
		}
	}
	walk(n, 0)
	return b.String()
}
