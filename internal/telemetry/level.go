package telemetry

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Level is a level of logs that can be changed while the process runs, for a while or until it
// ends. It is safe for concurrent use.
type Level struct {
	now slog.LevelVar

	mu    sync.Mutex
	usual slog.Level // where it goes back to
	until time.Time  // zero if it stays
	back  *time.Timer
	tell  func(change string)
}

// NewLevel makes one. What changes it is told; tell may be nil.
func NewLevel(usual slog.Level, tell func(change string)) *Level {
	l := &Level{usual: usual, tell: tell}
	l.now.Set(usual)
	return l
}

// Level implements [slog.Leveler].
func (l *Level) Level() slog.Level { return l.now.Level() }

// AtMost is this level, or another one if that is lower.
func (l *Level) AtMost(other slog.Level) slog.Leveler { return atMost{l, other} }

type atMost struct {
	of    *Level
	other slog.Level
}

// Level implements [slog.Leveler].
func (l atMost) Level() slog.Level { return min(l.of.Level(), l.other) }

// maxFor bounds for how long a level can be changed for a while.
const maxFor = 7 * 24 * time.Hour

// Set changes the level; after a while it goes back to what it was before, or if that is 0, it
// stays. The text is a name of [ParseLevel]. By says who wants it.
func (l *Level) Set(level string, after time.Duration, by string) error {
	to, err := ParseLevel(level)
	if err != nil {
		return err
	}
	if after < 0 || after > maxFor {
		return fmt.Errorf("for %v: want up to %v, or 0 for until the process ends", after, maxFor)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.back != nil {
		l.back.Stop()
		l.back, l.until = nil, time.Time{}
	}
	if after == 0 {
		l.usual = to
		l.change(to, fmt.Sprintf("the log level is %s now (%s)", nameOf(to), by))
		return nil
	}
	l.until = time.Now().UTC().Add(after)
	var own *time.Timer
	own = time.AfterFunc(after, func() { l.goBack(&own) })
	l.back = own
	l.change(to, fmt.Sprintf("the log level is %s until %s (%s)", nameOf(to), l.until.Format(time.RFC3339), by))
	return nil
}

// goBack ends a change that was for a while, unless there was another one since.
func (l *Level) goBack(own **time.Timer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.back != *own {
		return
	}
	l.back, l.until = nil, time.Time{}
	l.change(l.usual, fmt.Sprintf("the log level is %s again", nameOf(l.usual)))
}

// change tells of it while both levels count, so that it is seen.
func (l *Level) change(to slog.Level, said string) {
	l.now.Set(min(to, l.now.Level(), slog.LevelInfo))
	if l.tell != nil {
		l.tell(said)
	}
	l.now.Set(to)
}

// State tells the level, and until when it is that; zero if nobody has said an end.
func (l *Level) State() (level string, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return nameOf(l.now.Level()), l.until
}

func nameOf(l slog.Level) string { return strings.ToLower(l.String()) }

// ParseLevel reads debug, info, warn or error.
func ParseLevel(name string) (slog.Level, error) {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("%.40q is not a log level: it is debug, info, warn or error", name)
}

// maxQuestion bounds what is read of a question.
const maxQuestion = 64

// ServeHTTP tells the level at GET, and changes it at PUT: the body is the name of one, and ?for=5m
// has it go back after a while. What a page in a browser sends is refused: there is none that has
// any business here.
func (l *Level) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPut:
		if status, err := l.put(w, r); err != nil {
			w.WriteHeader(status)
			fmt.Fprintln(w, err)
			return
		}
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT")
		w.WriteHeader(http.StatusMethodNotAllowed)
		fmt.Fprintln(w, "GET tells the level, PUT changes it")
		return
	}
	level, until := l.State()
	if until.IsZero() {
		fmt.Fprintln(w, level)
		return
	}
	fmt.Fprintf(w, "%s until %s\n", level, until.Format(time.RFC3339))
}

func (l *Level) put(w http.ResponseWriter, r *http.Request) (status int, err error) {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" || r.Header.Get("Origin") != "" {
		return http.StatusForbidden,
			errors.New("pages in browsers may not change it: use curl -X PUT -d debug, or rondo log-level")
	}
	var after time.Duration
	if text := r.URL.Query().Get("for"); text != "" {
		if after, err = time.ParseDuration(text); err != nil || after <= 0 {
			return http.StatusBadRequest, fmt.Errorf("for: %.40q is not a duration like 90s or 5m", text)
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
	if err != nil {
		return http.StatusBadRequest, fmt.Errorf("the body: %w; want debug, info, warn or error", err)
	}
	if err := l.Set(string(body), after, "over HTTP"); err != nil {
		return http.StatusBadRequest, err
	}
	return 0, nil
}
