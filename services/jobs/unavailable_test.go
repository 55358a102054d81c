package jobserver

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
)

// hanging is a store that does not answer.
type hanging struct{}

func (hanging) wait(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (h hanging) Do(ctx context.Context, _ string, _ ...jobs.Operation) ([]jobs.Result, error) {
	return nil, h.wait(ctx)
}

func (h hanging) Look(ctx context.Context, _ string) (jobs.Info, error) {
	return jobs.Info{}, h.wait(ctx)
}

func (h hanging) List(ctx context.Context, _ string, _ int) ([]jobs.Info, error) {
	return nil, h.wait(ctx)
}

func (h hanging) Dead(ctx context.Context, _ string, _ jobs.DeadID, _ int) ([]jobs.Dead, error) {
	return nil, h.wait(ctx)
}

func (h hanging) Starting(ctx context.Context) ([]jobs.Info, error) { return nil, h.wait(ctx) }

// away is a store whose database is away.
type away struct{ hanging }

func (away) Do(context.Context, string, ...jobs.Operation) ([]jobs.Result, error) {
	return nil, &history.Error{Class: history.Retry, Op: "commit", Err: context.DeadlineExceeded}
}

// asked sends a request to a server of a store, and returns the status.
func asked(s *Server, method, path, body string) int {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host, r.RemoteAddr = "127.0.0.1", "127.0.0.1:1"
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Code
}

// TestEveryRouteHasATimeLimit: a database that does not answer holds no request for longer than the
// limit.
func TestEveryRouteHasATimeLimit(t *testing.T) {
	bodies := map[string]string{"push": `{"item": 1}`, "acknowledge": `{"lock_id": "l"}`, "extend": `{"lock_id": "l"}`,
		"nack": `{"lock_id": "l"}`, "configure": `{}`, "requeue": `{}`}
	for _, r := range routes {
		if r.ID == "openapi" {
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := New(hanging{}, Config{Address: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				methods := []string{r.Method}
				if r.Method == http.MethodGet {
					methods = append(methods, http.MethodHead) // the router has it go to the same route
				}
				for _, method := range methods {
					began := time.Now()
					status := asked(s, method, strings.ReplaceAll(r.Path, "{queue_id}", "q"), bodies[r.ID])
					if took := time.Since(began); status != http.StatusServiceUnavailable || took != s.config.Timeout {
						t.Errorf("%s: %d after %v", method, status, took)
					}
				}
			})
		})
	}
}

// TestRequestsThatAreToBeRetriedAreLoggedOnceAMinute: a database that is away fails thousands of
// requests.
func TestRequestsThatAreToBeRetriedAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &said{}
		s, err := New(away{}, Config{Address: "127.0.0.1:0", Logger: log.logger()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		push := func() {
			t.Helper()
			if status := asked(s, "POST", "/queue/q/push", `{"item": 1}`); status != http.StatusServiceUnavailable {
				t.Fatal(status)
			}
		}
		for range 10 {
			push()
		}
		s.refuse(&call{Request: httptest.NewRequest("GET", "/queues", nil), span: noop.Span{}},
			newProblem(http.StatusServiceUnavailable, codeUnknown, "perhaps")) // has a line of its own
		<-time.After(time.Minute)
		push()
		text := log.String()
		if n := strings.Count(text, "POST"); n != 2 || strings.Count(text, "level=WARN") != 3 ||
			strings.Count(text, "reason="+codeUnknown) != 1 ||
			!strings.Contains(text, "requests=1 ") || !strings.Contains(text, "requests=10 ") {
			t.Errorf("%d of 11 requests are logged:\n%s", n, text)
		}
	})
}
