package jobserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/jobs"
)

// route is a route of the server.
type route struct {
	Method, Path string
	// ID is the name of the operation in the OpenAPI document.
	ID string
	// Right is the right that the caller needs, for the queue in the path; "" for routes that check
	// themselves.
	Right Permission
	serve serve
}

// usesQueues reports whether the route reads or changes queues.
func (r route) usesQueues() bool { return r.Right != "" || r.ID == "list" }

// handlers have the operations of all routes, by what they are about.
type handlers struct {
	items  *jobHandlers
	queues *queueHandlers
	dead   *deadHandlers
}

// serve does the operation of a route for a request.
type serve func(*handlers, *call) (answer, error)

// onJobs, onQueues and onDead make a serve of a method of those handlers.
func onJobs(do func(*jobHandlers, *call) (answer, error)) serve {
	return func(h *handlers, c *call) (answer, error) { return do(h.items, c) }
}

func onQueues(do func(*queueHandlers, *call) (answer, error)) serve {
	return func(h *handlers, c *call) (answer, error) { return do(h.queues, c) }
}

func onDead(do func(*deadHandlers, *call) (answer, error)) serve {
	return func(h *handlers, c *call) (answer, error) { return do(h.dead, c) }
}

// routes is the table of all routes.
var routes = []route{
	{"POST", "/queue/{queue_id}/push", "push", Push, onJobs((*jobHandlers).push)},
	{"POST", "/queue/{queue_id}/pop", "pop", Pop, onJobs((*jobHandlers).pop)},
	{"POST", "/queue/{queue_id}/acknowledge", "acknowledge", Pop, onJobs((*jobHandlers).acknowledge)},
	{"POST", "/queue/{queue_id}/extend", "extend", Pop, onJobs((*jobHandlers).extend)},
	{"POST", "/queue/{queue_id}/nack", "nack", Pop, onJobs((*jobHandlers).nack)},
	{"GET", "/queue/{queue_id}", "look", Look, onQueues((*queueHandlers).look)},
	{"PUT", "/queue/{queue_id}", "configure", Manage, onQueues((*queueHandlers).configure)},
	{"DELETE", "/queue/{queue_id}", "delete", Manage, onQueues((*queueHandlers).remove)},
	{"GET", "/queue/{queue_id}/depth", "depth", Look, onQueues((*queueHandlers).depth)},
	{"GET", "/queue/{queue_id}/oldest", "oldest", Look, onQueues((*queueHandlers).oldest)},
	{"GET", "/queue/{queue_id}/dead", "dead", Look, onDead((*deadHandlers).list)},
	{"DELETE", "/queue/{queue_id}/dead", "removeDead", Manage, onDead((*deadHandlers).remove)},
	{"POST", "/queue/{queue_id}/dead/requeue", "requeue", Manage, onDead((*deadHandlers).requeue)},
	{"GET", "/queues", "list", "", onQueues((*queueHandlers).list)},
	{"GET", "/openapi.json", "openapi", "", openapi},
}

// answer is the answer to a request that was done.
type answer struct {
	status int // 0: 200
	body   any
	header map[string]string
}

// call is a request in progress.
type call struct {
	*http.Request
	id     string
	queue  string
	caller *Caller // nil without access control
	span   trace.Span
	body   heldBody
	answer *heldAnswer
	// control sets deadlines of the connection.
	control *http.ResponseController
}

// maxRequestID bounds the ids that clients may set.
const maxRequestID = 128

// Handler answers requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.Method+" "+r.Path, s.handle(r))
	}
	mux.Handle("/", s.handle(route{ID: "none", serve: func(_ *handlers, c *call) (answer, error) {
		return answer{}, notServed(mux, c.Request)
	}}))
	nowhere := s.handle(route{ID: "none", serve: func(*handlers, *call) (answer, error) { return answer{}, noRoute() }})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A ServeMux would redirect paths with dots and double slashes, with a body in HTML.
		p := r.URL.EscapedPath()
		if clean := path.Clean("/" + p); r.Method == http.MethodConnect || p != clean &&
			(p != clean+"/" || clean == "/") {
			nowhere.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// notServed returns the error for an unknown path, or for the wrong method.
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

// handle answers one route's requests: it identifies the caller, and records the outcome.
func (s *Server) handle(r route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		began := time.Now()
		c := &call{Request: req, id: s.requestID(req), queue: req.PathValue("queue_id"),
			control: http.NewResponseController(w)}
		ctx := s.texts.Extract(req.Context(), propagation.HeaderCarrier(req.Header))
		ctx, c.span = s.tracer.Start(ctx, method(req)+" "+or(r.Path, "(none)"),
			trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
				semconv.HTTPRequestMethodKey.String(method(req)), semconv.HTTPRoute(r.Path),
				semconv.URLPath(req.URL.EscapedPath()), attribute.String("http.request.id", c.id)))
		defer c.span.End()
		// Other methods change queues, in transactions with that limit.
		if req.Method == http.MethodGet || req.Method == http.MethodHead {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.config.Timeout)
			defer cancel()
		}
		c.Request = req.WithContext(ctx)
		c.answer = s.answers.of(nil)
		defer func() {
			c.body.release()
			c.answer.release()
		}()
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
		write(w, c, status, a.body)
		c.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		if jobs.CheckName(c.queue) == nil { // a text that is not UTF-8 would cost all spans that are sent with it
			c.span.SetAttributes(semconv.MessagingDestinationName(c.queue))
		}
		if status >= 500 {
			c.span.SetStatus(codes.Error, http.StatusText(status))
		}
		s.config.Metrics.Jobs().Request(r.ID, status, time.Since(began))
	})
}

// method is one of the usual ones, so that clients cannot make up names of spans.
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

// safely does the operation of a route. A panic is an error of this request only.
func (s *Server) safely(r route, c *call) (a answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if err := s.admit(r, c); err != nil {
		return answer{}, err
	}
	if err := s.ready(r); err != nil {
		return answer{}, err
	}
	return r.serve(s.handlers, c)
}

// admit identifies the caller, and checks its permissions.
func (s *Server) admit(r route, c *call) error {
	if s.config.Access == nil {
		if err := fromHere(c.Request); err != nil {
			return err
		}
	} else {
		caller, err := s.config.Access.Caller(c.Request)
		if err != nil {
			p := newProblem(http.StatusUnauthorized, codeWho, err.Error())
			p.header["WWW-Authenticate"] = "Bearer"
			return p
		}
		if c.Header.Get("Authorization") == "" { // a browser shows certificates for any page
			if err := fromSite(c.Request); err != nil {
				return err
			}
		}
		c.caller = caller
		c.answer = s.answers.of(caller)
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

// ready refuses requests that need queues, while these may not be used.
func (s *Server) ready(r route) error {
	if s.config.Ready == nil || !r.usesQueues() {
		return nil
	}
	if err := s.config.Ready(); err != nil {
		return newProblem(http.StatusServiceUnavailable, codeUnavailable, err.Error()+"; try again").retry(time.Second)
	}
	return nil
}

// may reports whether the caller has a right for a queue.
func (c *call) may(r Permission, name string) bool { return c.caller == nil || c.caller.May(r, name) }

// refuse converts an error to an answer, and logs errors that are not the client's.
func (s *Server) refuse(c *call, err error) answer {
	p := problemOf(err, s.config.Now())
	if p.Status >= 500 && p.Status != http.StatusInsufficientStorage {
		c.span.RecordError(err)
		s.logFailure(c, p, err)
	}
	told := *p
	told.RequestID, told.Instance = c.id, c.URL.EscapedPath()
	header := map[string]string{"Content-Type": "application/problem+json"}
	for name, value := range p.header {
		header[name] = value
	}
	return answer{status: p.Status, body: told, header: header}
}

// unavailable are the answers 503 with one code.
type unavailable struct {
	n   atomic.Int64 // since the last one that was logged
	log rate.Sometimes
}

// logFailure logs that a request has failed. Of those that clients are to retry, thousands may fail
// in a second, because the database is away or there is no memory: one a minute is logged.
func (s *Server) logFailure(c *call, p *problem, err error) {
	if p.Status != http.StatusServiceUnavailable {
		s.config.Logger.ErrorContext(c.Context(), "a request to a queue has failed", "method", c.Method, "path",
			c.URL.EscapedPath(), "request_id", c.id, "error", err)
		return
	}
	of, _ := s.unavailable.LoadOrStore(p.ErrorCode, &unavailable{log: rate.Sometimes{Interval: warnEvery}})
	u, ok := of.(*unavailable)
	if !ok {
		return
	}
	u.n.Add(1)
	u.log.Do(func() {
		s.config.Logger.WarnContext(c.Context(), "requests to queues have failed; their clients are to retry",
			"reason", p.ErrorCode, "requests", u.n.Swap(0), "method", c.Method, "path", c.URL.EscapedPath(),
			"request_id", c.id, "error", err)
	})
}

// requestID is the id that the client has set, if a log may have it, or a new one.
func (s *Server) requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	fits := id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(c rune) bool {
		return c <= ' ' || c > '~'
	})
	if fits {
		return id
	}
	return s.ids.next()
}

// idSource makes the ids of locks and requests.
type idSource struct{ random io.Reader }

func (s idSource) next() string {
	var b [8]byte
	if _, err := s.random.Read(b[:]); err != nil {
		panic(fmt.Errorf("no random numbers: %w", err)) // crypto/rand never fails
	}
	return jobs.LockID(b)
}

// write writes an answer as JSON. It holds the text until the client has read it.
func write(w http.ResponseWriter, c *call, status int, body any) {
	text := encode(body)
	if _, static := body.([]byte); !static {
		c.answer.has(len(text))
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	_, _ = w.Write(text) // an error means that the client has gone
}

func encode(body any) []byte {
	switch body := body.(type) {
	case nil:
		return nil
	case []byte:
		return body
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		panic(fmt.Errorf("an answer cannot be written: %w", err)) // all answers can be encoded
	}
	return out.Bytes()
}
