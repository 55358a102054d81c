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

// Level is a log level that can be changed while the process runs, for a while or until it ends. It
// is safe for concurrent use.
type Level struct {
	now slog.LevelVar

	mu      sync.Mutex
	usual   slog.Level // to which it goes back
	until   time.Time  // zero if it stays
	back    *time.Timer
	changed func(change string)
}

// NewLevel returns a level. It calls tell, unless nil, with each change.
func NewLevel(usual slog.Level, record func(change string)) *Level {
	l := &Level{usual: usual, changed: record}
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

// maxFor bounds the duration of a temporary change.
const maxFor = 7 * 24 * time.Hour

// Set changes the level; after a while it goes back to the level before, or if that is 0, it stays.
// The text is a name of [ParseLevel]. By names the source of the change.
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

// goBack ends a temporary change, unless there was another one since.
func (l *Level) goBack(own **time.Timer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.back != *own {
		return
	}
	l.back, l.until = nil, time.Time{}
	l.change(l.usual, fmt.Sprintf("the log level is %s again", nameOf(l.usual)))
}

// change logs the change while the lower of both levels holds, so that it is visible.
func (l *Level) change(to slog.Level, said string) {
	l.now.Set(min(to, l.now.Level(), slog.LevelInfo))
	if l.changed != nil {
		l.changed(said)
	}
	l.now.Set(to)
}

// State returns the level, and the end of a temporary change; zero if there is no end.
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

// maxQuestion bounds the body of a request.
const maxQuestion = 64

// ServeHTTP returns the level at GET, and changes it at PUT: the body is the name of a level, and
// ?for=5m makes the change temporary. It refuses requests from pages in a browser: no page has a
// reason to send one.
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
