package openapi_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// faulty is a store that fails on demand.
type faulty struct {
	jobs.Store
	// err, if set, is the error of every call; onForget, if set, is called before a queue is
	// removed.
	err      error
	onForget func()
}

func (f *faulty) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	if f.err != nil {
		return nil, f.err
	}
	if _, forget := operations[0].(jobs.Forget); forget && f.onForget != nil {
		f.onForget()
	}
	return f.Store.Do(ctx, name, operations...)
}

func (f *faulty) Look(ctx context.Context, name string) (jobs.Info, error) {
	if f.err != nil {
		return jobs.Info{}, f.err
	}
	return f.Store.Look(ctx, name)
}

func (f *faulty) List(ctx context.Context, after string, limit int) ([]jobs.Info, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Store.List(ctx, after, limit)
}

func (f *faulty) Dead(ctx context.Context, name string, after jobs.DeadID, limit int) ([]jobs.Dead, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Store.Dead(ctx, name, after, limit)
}

// world is a server, its OpenAPI document, and the responses seen so far.
type world struct {
	t      *testing.T
	doc    *openapi3.T
	router routers.Router
	http   http.Handler // requires a token
	open   http.Handler // requires none
	store  *faulty
	now    time.Time
	seen   map[string]map[int]int // by operation and status
}

// The tokens of a client with all permissions, one with none, and one with all and a low rate
// limit.
const (
	master = "token-of-master"
	nobody = "token-of-nobody"
	seldom = "token-of-seldom"
)

// document reads the OpenAPI document of the server.
func document(t *testing.T, h http.Handler) *openapi3.T {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "http://localhost/openapi.json", nil)
	r.Header.Set("Authorization", "Bearer "+master)
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("GET /openapi.json: %d %s", w.Code, w.Body)
	}
	doc, err := openapi3.NewLoader().LoadFromData(w.Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Fatal("the document is not valid: ", err)
	}
	return doc
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Unix(1709139215, 123e6).UTC(), seen: make(map[string]map[int]int)}
	clock := func() time.Time { return w.now } // requests come one after the other
	log := slog.New(slog.DiscardHandler)
	db, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Options{Now: clock, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	w.store = &faulty{Store: db.Queues()}
	access, err := jobserver.OpenAccess(accessFile(t), log)
	if err != nil {
		t.Fatal(err)
	}
	handler := func(access *jobserver.Access) http.Handler {
		server, err := jobserver.New(w.store, jobserver.Config{Address: "127.0.0.1:0", Access: access, MaxBody: 2000,
			MaxJob: 500, Logger: log, Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		})
		return server.Handler()
	}
	w.http, w.open = handler(access), handler(nil)
	w.doc = document(t, w.http)
	if w.router, err = gorillamux.NewRouter(w.doc); err != nil {
		t.Fatal(err)
	}
	return w
}

func accessFile(t *testing.T) string {
	var b strings.Builder
	b.WriteString("callers:\n")
	for _, c := range []struct{ token, queues, more string }{{master, "'*'", "        start: ['*']\n"},
		{nobody, "none-of-these", ""}, {seldom, "'*'", "    rate: 0.5\n"}} {
		fmt.Fprintf(&b,
			"  - name: %s\n    token_sha256: ['%x']\n    allow:\n      - queues: [%s]\n        permissions: "+
				"[push, pop, look, manage]\n%s",
			strings.TrimPrefix(c.token, "token-of-"), sha256.Sum256([]byte(c.token)), c.queues, c.more)
	}
	path := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// fault is how a request is not as the document has it.
type fault int

const (
	none    fault = iota
	told          // the document does not allow the request
	untold        // the document cannot express the error
	nowhere       // the document has no such path or method
)

// request is one to send.
type request struct {
	status int
	method string
	target string
	body   string
	fault  fault
	token  string
	header map[string]string
	host   string // the name by which the server without access control is asked, "" for the one with it
	cut    error  // how its body ends
}

// ask sends a request, checks that it and its response conform to the document, and returns the
// members of the response.
func (w *world) ask(q request) map[string]any {
	w.t.Helper()
	what := strings.TrimSpace(q.method + " " + q.target + " " + q.body[:min(len(q.body), 100)])
	r := func() *http.Request {
		var body io.Reader
		switch {
		case q.cut != nil:
			body = io.MultiReader(strings.NewReader(q.body), failing{q.cut})
		case q.body != "":
			body = strings.NewReader(q.body)
		}
		r := httptest.NewRequest(q.method, "http://localhost"+q.target, body)
		if q.body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		if token := cmp.Or(q.token, master); token != "-" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		r.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		for name, value := range q.header {
			r.Header.Set(name, value)
		}
		return r
	}
	out := httptest.NewRecorder()
	if q.host == "" {
		w.http.ServeHTTP(out, r())
	} else {
		asked := r()
		asked.Host = q.host
		w.open.ServeHTTP(out, asked)
	}
	if out.Code != q.status {
		w.t.Errorf("%s: %d; want %d\n%s", what, out.Code, q.status, out.Body)
	}
	var members map[string]any
	if err := json.Unmarshal(out.Body.Bytes(), &members); err != nil {
		w.t.Errorf("%s: %v\n%s", what, err, out.Body)
	}
	if q.fault == nowhere {
		w.isProblem(what, out)
		if _, _, err := w.router.FindRoute(r()); err == nil {
			w.t.Errorf("%s: the document has it, and the server has not", what)
		}
		return members
	}
	route, params, err := w.router.FindRoute(r())
	if err != nil {
		w.t.Errorf("%s: the document does not have it: %v", what, err)
		return members
	}
	input := &openapi3filter.RequestValidationInput{Request: r(), PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			IncludeResponseStatus: true, SkipSettingDefaults: true, RejectWhenRequestBodyNotSpecified: true,
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		}}
	if q.cut == nil {
		err = openapi3filter.ValidateRequest(w.t.Context(), input)
		switch {
		case q.fault == none && err != nil:
			w.t.Errorf("%s: the document does not allow it: %v", what, err)
		case q.fault == told && err == nil:
			w.t.Errorf("%s: the document allows it", what)
		case q.fault == untold && err != nil:
			w.t.Errorf("%s: the document tells that this is wrong: %v", what, err)
		}
	}
	answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: out.Code,
		Header: out.Header(), Options: input.Options}
	if err := openapi3filter.ValidateResponse(w.t.Context(), answer.SetBodyBytes(out.Body.Bytes())); err != nil {
		w.t.Errorf("%s: the answer %d is not as the document says: %v", what, out.Code, err)
	}
	if out.Code >= 400 {
		w.isProblem(what, out)
	}
	id := route.Operation.OperationID
	if w.seen[id] == nil {
		w.seen[id] = make(map[int]int)
	}
	w.seen[id][out.Code]++
	return members
}

// failing is a body that ends with an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// isProblem checks the common conditions of all problems, also for those without a route.
func (w *world) isProblem(what string, out *httptest.ResponseRecorder) {
	w.t.Helper()
	var p map[string]any
	if err := json.NewDecoder(bytes.NewReader(out.Body.Bytes())).Decode(&p); err != nil {
		w.t.Errorf("%s: %v", what, err)
		return
	}
	if err := w.doc.Components.Schemas["Problem"].Value.VisitJSON(p, openapi3.EnableJSONSchema2020()); err != nil {
		w.t.Errorf("%s: the problem is not as the document says: %v", what, err)
	}
	if is := out.Header().Get("Content-Type"); is != "application/problem+json" {
		w.t.Errorf("%s: the answer %d is %q", what, out.Code, is)
	}
	if p["status"] != float64(out.Code) || p["request_id"] != out.Header().Get("X-Request-Id") ||
		p["request_id"] == "" {
		w.t.Errorf("%s: status %v of %d, request_id %v of %q", what, p["status"], out.Code, p["request_id"],
			out.Header().Get("X-Request-Id"))
	}
}

// named are the statuses that the document has for each operation.
func (w *world) named() map[string][]int {
	all := make(map[string][]int)
	for _, item := range w.doc.Paths.Map() {
		for _, o := range item.Operations() {
			for status := range o.Responses.Map() {
				n, err := strconv.Atoi(status)
				if err != nil {
					w.t.Errorf("%s: a status %q", o.OperationID, status)
				}
				all[o.OperationID] = append(all[o.OperationID], n)
			}
			slices.Sort(all[o.OperationID])
		}
	}
	return all
}

// complete fails if the document has a response that was not seen. It logs how often each other one
// was.
func (w *world) complete() {
	w.t.Helper()
	combinations, requests := 0, 0
	named := w.named()
	for _, id := range slices.Sorted(maps.Keys(named)) {
		line := id + ":"
		for _, status := range named[id] {
			n := w.seen[id][status]
			if n == 0 {
				w.t.Errorf("%s: the document names %d, which never came", id, status)
			}
			line += fmt.Sprintf(" %d×%d", status, n)
			requests += n
			combinations++
		}
		w.t.Log(line)
	}
	w.t.Logf("%d operations, %d combinations of operation and status, %d requests", len(named), combinations, requests)
}
