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

// Result is one line of results.
type Result struct {
	Workload string `json:"workload"`
	Variant  string `json:"variant"`
	Database string `json:"database"`
	// Unit says what N counts and what is divided by it: orchestrations or activities.
	Unit      string  `json:"unit"`
	N         int     `json:"n"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms,omitempty"`
	P99       float64 `json:"p99_ms,omitempty"`
	P999      float64 `json:"p999_ms,omitempty"`
	// MemoryAt and Memory are the memory of each process in MB over time, where that is measured.
	MemoryAt []float64            `json:"memory_at,omitempty"`
	Memory   map[string][]float64 `json:"memory_mb,omitempty"`
	// of one processor, by each process, between those times
	CPUAt  map[string][]float64 `json:"cpu_percent_at,omitempty"`
	Stolen []float64            `json:"stolen_percent_at,omitempty"` // of all processors, by others
	At99   []float64            `json:"p99_ms_at,omitempty"`         // of what ended between those times
	// Figures are what only this workload has.
	Figures map[string]float64 `json:"figures,omitempty"`

	// CPU is milliseconds of a processor for each of N, by process. RSS is in MB, at the end.
	CPU map[string]float64 `json:"cpu_ms"`
	RSS map[string]float64 `json:"rss_mb"`
	// Own is the share of the machine's processors that these used, Busy the share that was in use,
	// Steal what other machines took of them, in percent.
	Own   float64 `json:"own_percent"`
	Busy  float64 `json:"busy_percent"`
	Steal float64 `json:"steal_percent"`

	Commits      float64 `json:"commits"`                // as the orchestrators count them
	Again        float64 `json:"commits_again"`          // attempts to commit that were tried again
	Conflicts    float64 `json:"conflicts"`              // rounds that another orchestrator was faster than
	Events       float64 `json:"events"`                 // of histories that were written
	Transactions int64   `json:"transactions,omitempty"` // as PostgreSQL counts them
	// inserted, updated and deleted, as PostgreSQL counts them
	Rows        int64              `json:"rows,omitempty"`
	Syncs       int64              `json:"syncs,omitempty"`     // of PostgreSQL's log
	Logged      int64              `json:"log_bytes,omitempty"` // of that log
	Pages       int64              `json:"log_pages,omitempty"` // whole ones, in that log
	Messages    int64              `json:"jetstream_messages,omitempty"`
	NATSIn      int64              `json:"nats_in_messages,omitempty"`
	NATSBytes   int64              `json:"nats_bytes,omitempty"` // in and out
	Allocations map[string]float64 `json:"allocations"`
	Allocated   map[string]float64 `json:"allocated_bytes"`

	Runs     int       `json:"runs"`                     // of which this is the one in the middle
	Compared string    `json:"compared,omitempty"`       // by which figure, if not how many there are in a second
	Spread   float64   `json:"spread_percent,omitempty"` // between the best and the worst of them
	All      []float64 `json:"all,omitempty"`            // that figure of each

	Size string    `json:"size"`
	At   time.Time `json:"at"`
	Sync float64   `json:"sync_ms,omitempty"` // of 8 KB, just before
	// Stalled is for how many milliseconds the disk finished nothing while something waited for it,
	// in times of 50 ms and more, and LongestStall the longest of these.
	Stalled      float64 `json:"disk_stalled_ms,omitempty"`
	LongestStall float64 `json:"disk_longest_stall_ms,omitempty"`
	Switch       int64   `json:"switch_ns"` // of a coroutine, just before: how fast the processor is just now
	Load         float64 `json:"load"`      // of the machine, just before
	Checked      bool    `json:"checked"`
	machine
	NATSVersion      string   `json:"nats_version,omitempty"`
	DatabaseVersion  string   `json:"database_version,omitempty"`
	DatabaseSettings []string `json:"database_settings,omitempty"` // that are not its defaults

	counted bool // what everything has counted belongs to what was measured
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

// machine is where and what was measured.
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
