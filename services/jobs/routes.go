package jobserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history"
)

// route is one of those that are served.
type route struct {
	Method, Path string
	// ID is the name of the operation in the OpenAPI document.
	ID string
	// Right is what the caller needs, for the queue in the path; "" for routes that look after that
	// themselves.
	Right Right
	serve func(*Server, *call) (answer, error)
}

// routes is the table of all routes.
var routes = []route{
	{"POST", "/queue/{queue_id}/push", "push", Push, (*Server).push},
	{"POST", "/queue/{queue_id}/pop", "pop", Pop, (*Server).pop},
	{"POST", "/queue/{queue_id}/acknowledge", "acknowledge", Pop, (*Server).acknowledge},
	{"POST", "/queue/{queue_id}/extend", "extend", Pop, (*Server).extend},
	{"POST", "/queue/{queue_id}/nack", "nack", Pop, (*Server).nack},
	{"GET", "/queue/{queue_id}", "look", Look, (*Server).look},
	{"PUT", "/queue/{queue_id}", "configure", Manage, (*Server).configure},
	{"DELETE", "/queue/{queue_id}", "delete", Manage, (*Server).remove},
	{"GET", "/queue/{queue_id}/depth", "depth", Look, (*Server).depth},
	{"GET", "/queue/{queue_id}/oldest", "oldest", Look, (*Server).oldest},
	{"GET", "/queue/{queue_id}/dead", "dead", Look, (*Server).dead},
	{"DELETE", "/queue/{queue_id}/dead", "removeDead", Manage, (*Server).removeDead},
	{"POST", "/queue/{queue_id}/dead/requeue", "requeue", Manage, (*Server).requeue},
	{"GET", "/queues", "list", "", (*Server).list},
	{"GET", "/openapi.json", "openapi", "", (*Server).openapi},
}

// answer is what is said to a request that was done.
type answer struct {
	status int // 0: 200
	body   any
	header map[string]string
}

// call is a request on its way.
type call struct {
	*http.Request
	id     string
	queue  string
	caller *Caller // nil where nobody is asked
	span   trace.Span
	held   int64 // bytes that its body may have in memory
}

// maxRequestID bounds the ids that are taken from callers.
const maxRequestID = 128

// Handler answers requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.Method+" "+r.Path, s.handle(r))
	}
	mux.Handle("/", s.handle(route{ID: "none", serve: func(_ *Server, c *call) (answer, error) {
		return answer{}, notServed(mux, c.Request)
	}}))
	nowhere := s.handle(route{ID: "none", serve: func(*Server, *call) (answer, error) { return answer{}, noRoute() }})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A ServeMux would send those with dots and double slashes elsewhere, and say so in HTML.
		p := r.URL.EscapedPath()
		if clean := path.Clean("/" + p); r.Method == http.MethodConnect || p != clean &&
			(p != clean+"/" || clean == "/") {
			nowhere.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// notServed says why there is nothing at a path: another method is meant, or another path.
func notServed(mux *http.ServeMux, r *http.Request) error {
	var methods []string
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); strings.HasPrefix(pattern, method+" ") {
			methods = append(methods, method)
		}
	}
	if len(methods) > 0 {
		p := newProblem(http.StatusMethodNotAllowed, codeNoMethod, "this path takes "+strings.Join(methods, " and "))
		p.header["Allow"] = strings.Join(methods, ", ")
		return p
	}
	return noRoute()
}

func noRoute() *problem {
	return newProblem(http.StatusNotFound, codeNoRoute,
		"there is nothing at this path; GET /openapi.json tells what there is")
}

// handle answers one route's requests: it finds out who asks, and tells what became of it.
func (s *Server) handle(r route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		began := time.Now()
		c := &call{Request: req, id: s.requestID(req), queue: req.PathValue("queue_id")}
		ctx := s.texts.Extract(req.Context(), propagation.HeaderCarrier(req.Header))
		ctx, c.span = s.tracer.Start(ctx, method(req)+" "+or(r.Path, "(none)"),
			trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
				semconv.HTTPRequestMethodKey.String(method(req)), semconv.HTTPRoute(r.Path),
				semconv.URLPath(req.URL.EscapedPath()), attribute.String("http.request.id", c.id)))
		defer c.span.End()
		c.Request = req.WithContext(ctx)
		defer func() { s.bodies.Release(c.held) }()
		a, err := s.safely(r, c)
		if err != nil {
			a = s.refuse(c, err)
		}
		status := or(a.status, http.StatusOK)
		w.Header().Set("X-Request-Id", c.id)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		for name, value := range a.header {
			w.Header().Set(name, value)
		}
		write(w, status, a.body)
		c.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		if jobs.CheckName(c.queue) == nil { // a text that is not UTF-8 would cost all spans that are sent with it
			c.span.SetAttributes(semconv.MessagingDestinationName(c.queue))
		}
		if status >= 500 {
			c.span.SetStatus(codes.Error, http.StatusText(status))
		}
		s.config.Metrics.QueueRequest(r.ID, status, time.Since(began))
	})
}

// method is one of the usual ones, so that nobody can make up names for spans.
func method(r *http.Request) string {
	if slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, r.Method) {
		return r.Method
	}
	return "_OTHER"
}

func or[T comparable](v, otherwise T) T {
	orElse(&v, otherwise)
	return v
}

// safely does what a route does. What panics is a fault of ours, and takes nothing else with it.
func (s *Server) safely(r route, c *call) (a answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if err := s.admit(r, c); err != nil {
		return answer{}, err
	}
	return r.serve(s, c)
}

// admit finds out who asks, and whether they may.
func (s *Server) admit(r route, c *call) error {
	if s.config.Access == nil {
		if err := fromHere(c.Request); err != nil {
			return err
		}
	} else {
		caller, err := s.config.Access.Who(c.Request)
		if err != nil {
			p := newProblem(http.StatusUnauthorized, codeWho, err.Error())
			p.header["WWW-Authenticate"] = "Bearer"
			return p
		}
		if c.Header.Get("Authorization") == "" { // a browser shows certificates by itself, whoever's page it is
			if err := fromSite(c.Request); err != nil {
				return err
			}
		}
		c.caller = caller
	}
	if wait := s.limits.wait(c.caller); wait > 0 {
		return newProblem(http.StatusTooManyRequests, codeTooMany,
			"too many requests a second: wait, or push and pop several items at once").retry(wait)
	}
	if r.Right == "" {
		return nil
	}
	if err := jobs.CheckName(c.queue); err != nil {
		return err
	}
	if !c.may(r.Right, c.queue) {
		return newProblem(http.StatusForbidden, codeMayNot,
			fmt.Sprintf("%s may not %s queue %s: the access file does not allow it", c.caller.Name, r.Right, c.queue))
	}
	return nil
}

// may reports whether the caller has a right for a queue.
func (c *call) may(r Right, name string) bool { return c.caller == nil || c.caller.May(r, name) }

// refuse tells why a request is refused, and the log what is not the caller's fault.
func (s *Server) refuse(c *call, err error) answer {
	p := problemOf(err, s.config.Now())
	if p.Status >= 500 && p.Status != http.StatusInsufficientStorage {
		s.config.Logger.ErrorContext(c.Context(), "a request to a queue has failed", "method", c.Method, "path",
			c.URL.EscapedPath(), "request_id", c.id, "error", err)
		c.span.RecordError(err)
	}
	told := *p
	told.RequestID, told.Instance = c.id, c.URL.EscapedPath()
	header := map[string]string{"Content-Type": "application/problem+json"}
	for name, value := range p.header {
		header[name] = value
	}
	return answer{status: p.Status, body: told, header: header}
}

// requestID is what the caller says, if that can stand in a log, or a new one.
func (s *Server) requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	fits := id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(c rune) bool {
		return c <= ' ' || c > '~'
	})
	if fits {
		return id
	}
	return s.random()
}

// random makes the id of a lock or of a request.
func (s *Server) random() string {
	var b [8]byte
	if _, err := s.config.Random.Read(b[:]); err != nil {
		panic(fmt.Errorf("no random numbers: %w", err)) // crypto/rand never fails
	}
	return jobs.LockID(b)
}

// write writes an answer as JSON.
func write(w http.ResponseWriter, status int, body any) {
	var out bytes.Buffer
	switch body := body.(type) {
	case nil:
	case []byte:
		out.Write(body)
	default:
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		if err := e.Encode(body); err != nil {
			panic(fmt.Errorf("an answer cannot be written: %w", err)) // they are made of what can be
		}
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // whoever asked has gone
}

// do does an operation for a request. The error says why it was refused, or has failed.
func (s *Server) do(c *call, op jobs.Operation) (jobs.Result, error) {
	r, err := s.Do(c.Context(), c.queue, op)
	if err == nil {
		err = r.Refused
	}
	if err != nil && history.ClassOf(err) == history.Retry && errors.Is(err, c.Context().Err()) {
		err = newProblem(http.StatusServiceUnavailable, codeUnknown,
			"the request was given up while it was under way, and may have been done").retry(time.Second)
	}
	return r, err
}
