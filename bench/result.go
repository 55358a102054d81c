package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Result is one line of results. Its groups are embedded, so that a line of JSON has their keys
// side by side.
type Result struct {
	Workload string `json:"workload"`
	Variant  string `json:"variant"`
	Database string `json:"database"`
	// Unit is the unit that N counts, and per which costs are given: orchestrations or activities.
	Unit string `json:"unit"`
	throughput
	latencies
	course
	// Figures are the figures that only this workload has.
	Figures map[string]float64 `json:"figures,omitempty"`
	resources
	commitCounts
	databaseCounts
	natsTraffic
	allocations
	comparison
	Size string    `json:"size"`
	At   time.Time `json:"at"`
	conditions
	Checked bool `json:"checked"`
	machine
	versions

	counted bool // the counters belong to the measurement
}

// throughput is how many units were done, and how fast.
type throughput struct {
	N         int     `json:"n"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
}

// throughputOf returns the throughput of n units in so many seconds.
func throughputOf(n int, seconds float64) throughput {
	return throughput{N: n, Seconds: rounded(seconds, 3), PerSecond: rounded(float64(n)/seconds, 1)}
}

// latencies are percentiles of how long instances took, in milliseconds. They are 0 if that was not
// measured.
type latencies struct {
	P50  float64 `json:"p50_ms,omitempty"`
	P99  float64 `json:"p99_ms,omitempty"`
	P999 float64 `json:"p999_ms,omitempty"`
}

// latenciesOf returns the percentiles of durations.
func latenciesOf(took []time.Duration) latencies {
	sorted := milliseconds(took)
	return latencies{P50: rounded(percentile(sorted, 0.5), 3), P99: rounded(percentile(sorted, 0.99), 3),
		P999: rounded(percentile(sorted, 0.999), 3)}
}

// course is the course of a long measurement. Its lists have one value for each time in MemoryAt,
// and all are empty for other workloads.
type course struct {
	// MemoryAt and Memory are the memory of each process in MB over time.
	MemoryAt []float64            `json:"memory_at,omitempty"`
	Memory   map[string][]float64 `json:"memory_mb,omitempty"`
	// of one processor, by each process, between those times
	CPUAt  map[string][]float64 `json:"cpu_percent_at,omitempty"`
	Stolen []float64            `json:"stolen_percent_at,omitempty"` // of all processors, by others
	At99   []float64            `json:"p99_ms_at,omitempty"`         // of what ended between those times
}

// resources are the CPU time and the memory that the processes used.
type resources struct {
	// CPU is milliseconds of a processor for each of N, by process. RSS is in MB, at the end.
	CPU map[string]float64 `json:"cpu_ms"`
	RSS map[string]float64 `json:"rss_mb"`
	// Own is the share of the machine's processors that these used, Busy the share that was in use,
	// Steal the share that other machines took, in percent.
	Own   float64 `json:"own_percent"`
	Busy  float64 `json:"busy_percent"`
	Steal float64 `json:"steal_percent"`
}

// commitCounts count the work of the committers, as the orchestrators' metrics have it.
type commitCounts struct {
	Commits   float64 `json:"commits"`
	Again     float64 `json:"commits_again"` // attempts to commit that were tried again
	Conflicts float64 `json:"conflicts"`     // rounds that another orchestrator was faster than
	Events    float64 `json:"events"`        // of histories that were written
}

// databaseCounts are counters of PostgreSQL; 0 for other databases.
type databaseCounts struct {
	Transactions int64 `json:"transactions,omitempty"`
	Rows         int64 `json:"rows,omitempty"` // inserted, updated and deleted
	// Of all databases of the server: how often the server flushed its log to the disk, how many
	// bytes the log got, and how many whole pages in it.
	Syncs  int64 `json:"syncs,omitempty"`
	Logged int64 `json:"log_bytes,omitempty"`
	Pages  int64 `json:"log_pages,omitempty"`
}

// since returns how much the counters have grown since an earlier reading.
func (c databaseCounts) since(before databaseCounts) databaseCounts {
	return databaseCounts{Transactions: c.Transactions - before.Transactions, Rows: c.Rows - before.Rows,
		Syncs: c.Syncs - before.Syncs, Logged: c.Logged - before.Logged, Pages: c.Pages - before.Pages}
}

// natsTraffic counts the messages and bytes of the NATS server.
type natsTraffic struct {
	Messages  int64 `json:"jetstream_messages,omitempty"` // that streams have stored
	NATSIn    int64 `json:"nats_in_messages,omitempty"`
	NATSBytes int64 `json:"nats_bytes,omitempty"` // in and out
}

// allocations are what each Go process allocated, by process.
type allocations struct {
	Allocations map[string]float64 `json:"allocations"`
	Allocated   map[string]float64 `json:"allocated_bytes"`
}

// comparison compares the runs of a variant.
type comparison struct {
	Runs     int       `json:"runs"`                     // of which this is the one in the middle
	Compared string    `json:"compared,omitempty"`       // by which figure, if not how many there are in a second
	Spread   float64   `json:"spread_percent,omitempty"` // between the best and the worst of them
	All      []float64 `json:"all,omitempty"`            // that figure of each
}

// conditions are how fast and how busy the machine was by itself.
type conditions struct {
	Sync float64 `json:"sync_ms,omitempty"` // of 8 KB, just before
	// Stalled is for how many milliseconds the disk finished nothing while something waited for it,
	// in times of 50 ms and more, and LongestStall the longest of these.
	Stalled      float64 `json:"disk_stalled_ms,omitempty"`
	LongestStall float64 `json:"disk_longest_stall_ms,omitempty"`
	Switch       int64   `json:"switch_ns"` // of a coroutine, just before: how fast the processor is just now
	Load         float64 `json:"load"`      // of the machine, just before
}

// versions are the versions and settings of the servers.
type versions struct {
	NATSVersion      string   `json:"nats_version,omitempty"`
	DatabaseVersion  string   `json:"database_version,omitempty"`
	DatabaseSettings []string `json:"database_settings,omitempty"` // that are not its defaults
}

// headline is the figure that runs are compared by.
func (r *Result) headline() float64 {
	switch r.Compared {
	case "":
		return r.PerSecond
	case "p50_ms":
		return r.P50
	case "p99_ms":
		return r.P99
	}
	return r.Figures[r.Compared]
}

// ofMiddle gives the run in the middle, and how far apart the runs are.
func ofMiddle(runs []*Result) *Result {
	var all []float64
	for _, r := range runs {
		all = append(all, r.headline())
	}
	r := runs[middle(all)]
	r.Runs = len(runs)
	if len(runs) > 1 {
		r.Spread, r.All = rounded(spread(all), 1), all
	}
	return r
}

// machine describes the machine and the code of a measurement.
type machine struct {
	Cores  int    `json:"cores"`
	Go     string `json:"go"`
	Commit string `json:"commit"`
}

func describeMachine() machine {
	return machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Commit: commit()}
}

// commit is that of the repository, with a + if something in it was changed since; "" if there is
// none.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	id := strings.TrimSpace(string(out))
	if changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output(); err != nil ||
		len(changed) > 0 {
		id += "+"
	}
	return id
}

func writeResult(w io.Writer, r *Result) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// readResults reads lines of results.
func readResults(from io.Reader) (list []*Result, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		r := new(Result)
		if err := json.Unmarshal(lines.Bytes(), r); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		list = append(list, r)
	}
	return list, lines.Err()
}
