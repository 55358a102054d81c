package jobserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/x/plural"
)

// ---- Reading requests.

func badJSON(err error) error {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var said *problem
	switch {
	case errors.As(err, &said):
		return said
	case errors.As(err, &wrong):
		return invalid("%s: want %s, got %s", or(fieldOf(wrong), "the body"), wanted(wrong.Type.Kind().String()),
			kindOf(wrong.Value))
	case errors.As(err, &syntax):
		return invalid("the body is not valid JSON: %v, at byte %d", err, syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("the body is not valid JSON: it ends too early")
	}
	return invalid("the body: %s; GET /openapi.json tells what there may be", strings.TrimPrefix(err.Error(), "json: "))
}

// fieldOf is the path of a field without the names of Go types, which are not in the JSON.
func fieldOf(wrong *json.UnmarshalTypeError) string {
	words := strings.Split(wrong.Field, ".")
	words = slices.DeleteFunc(words, func(w string) bool { return w == "pushedJob" || w == "lockBody" })
	return strings.Join(words, ".")
}

// kindOf names a JSON value of which package json has told the kind, and of a number also the
// value.
func kindOf(value string) string {
	switch kind, rest, _ := strings.Cut(value, " "); kind {
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "bool":
		return "true or false"
	default:
		return strings.TrimSpace("a " + kind + " " + rest)
	}
}

// wanted is the name of a Go type in JSON.
func wanted(kind string) string {
	switch kind {
	case "string":
		return "a string"
	case "slice":
		return "a list"
	case "struct", "map":
		return "an object"
	case "bool":
		return "true or false"
	case "float64":
		return "a number"
	}
	return "a whole number"
}

// whole reads a parameter that is a whole number.
func whole(c *call, name string, otherwise int) (int, error) {
	text := c.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(text, "-") {
		n, err = math.MaxInt32, nil
	} else if errors.Is(err, strconv.ErrRange) {
		n, err = math.MinInt32, nil
	}
	if err != nil {
		return 0, invalid("%s: %q is no whole number", name, text)
	}
	return n, nil
}

// yes reads a parameter that is true or false.
func yes(c *call, name string) (bool, error) {
	if !c.URL.Query().Has(name) {
		return false, nil
	}
	switch text := strings.ToLower(c.URL.Query().Get(name)); text {
	case "false", "0", "no", "off":
		return false, nil
	case "true", "1", "yes", "on":
		return true, nil
	default:
		return false, invalid("%s: %q is neither true nor false", name, text)
	}
}

// known refuses parameters that are unknown or repeated: a misspelt require_ack must not become a
// pop without a lock.
func known(c *call, names ...string) error {
	all, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return invalid("the parameters cannot be read: %v; separate them by &, and escape them", err)
	}
	for name, values := range all {
		ok := false
		for _, n := range names {
			ok = ok || n == name
		}
		if !ok {
			return invalid("there is no parameter %q here%s", name, listed(names))
		}
		if len(values) > 1 {
			return invalid("%s: given %d times; give it once", name, len(values))
		}
	}
	return nil
}

func listed(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; there are " + strings.Join(names, ", ")
}

// ttlOf is the time of a lock in seconds, at most that of the longest one.
func ttlOf(seconds int) time.Duration {
	return jobs.TTL(time.Duration(min(max(seconds, 0), int(jobs.MaxTTL/time.Second))) * time.Second)
}

// delayOf is a delay in seconds.
func delayOf(seconds float64) (time.Duration, error) {
	if !(seconds >= 0 && seconds <= jobs.MaxDelay.Seconds()) {
		return 0, invalid("delay_seconds: %v; want 0 to %.0f", seconds, jobs.MaxDelay.Seconds())
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// ---- Push.

type pushedJob struct {
	Item     json.RawMessage `json:"item"`
	Priority int             `json:"priority"`
	Delay    float64         `json:"delay_seconds"`
}

type pushBody struct {
	pushedJob
	Items jobList `json:"items"`
}

// jobList is a list of jobs that is read up to its limit, since a short text may be many of them.
type jobList []pushedJob

// UnmarshalJSON implements [json.Unmarshaler].
func (l *jobList) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	if data[0] != '[' {
		return invalid("items: want a list of objects, each with an item")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if _, err := d.Token(); err != nil {
		return err
	}
	*l = jobList{}
	for d.More() {
		if len(*l) == jobs.MaxCount {
			return invalid("items: a list of more than %d; push 1 to %d at once", jobs.MaxCount, jobs.MaxCount)
		}
		var i pushedJob
		if err := d.Decode(&i); err != nil {
			return fmt.Errorf("items[%d]: %w", len(*l), err)
		}
		*l = append(*l, i)
	}
	return nil
}

type pushed struct {
	Success   bool   `json:"success"`
	Message   string `json:"message"`
	Items     int    `json:"items_pushed"`
	Duplicate bool   `json:"duplicate,omitempty"`
}

// keyFor is how long a push is remembered by its Idempotency-Key.
const keyFor = 7 * 24 * time.Hour

// jobHandlers serve the routes for the jobs of a queue: push, pop, and the operations on the lock
// of a pop.
type jobHandlers struct {
	operations *operations
	bodies     *bodies
	ids        idSource
	texts      propagation.TextMapPropagator // of trace contexts
	maxItem    int
}

func (h *jobHandlers) push(c *call) (answer, error) {
	if err := known(c); err != nil {
		return answer{}, err
	}
	var body pushBody
	if err := h.bodies.read(c, &body); err != nil {
		return answer{}, err
	}
	op, err := h.pushOf(c, body)
	if err != nil {
		return answer{}, err
	}
	r, err := h.operations.do(c, op)
	if err != nil {
		return answer{}, err
	}
	message := plural.Count(r.Count, "item") + " pushed"
	if r.Again {
		message += " before, with the same Idempotency-Key"
	}
	return answer{body: pushed{true, message, r.Count, r.Again}}, nil
}

func (h *jobHandlers) pushOf(c *call, body pushBody) (jobs.Push, error) {
	list := body.Items
	switch {
	case body.Items != nil && (body.Item != nil || body.Priority != 0 || body.Delay != 0):
		return jobs.Push{},
			invalid("give either item, with its priority and delay_seconds, or items, a list of such objects")
	case body.Items == nil:
		list = []pushedJob{body.pushedJob}
	case len(list) == 0:
		return jobs.Push{}, invalid("items: an empty list; push 1 to %d at once", jobs.MaxCount)
	}
	if keys := c.Header.Values("Idempotency-Key"); len(keys) > 1 || len(keys) == 1 && keys[0] == "" {
		return jobs.Push{}, invalid("give one Idempotency-Key that is not empty, or none")
	}
	op := jobs.Push{Key: c.Header.Get("Idempotency-Key"), KeyFor: keyFor, Jobs: make([]jobs.NewJob, len(list))}
	if len(op.Key) > jobs.MaxKey || !utf8.ValidString(op.Key) {
		return jobs.Push{}, invalid("the Idempotency-Key may have %d characters, in UTF-8", jobs.MaxKey)
	}
	trace := h.traceOf(c)
	digest := sha256.New()
	for n, i := range list {
		where := ""
		if body.Items != nil {
			where = fmt.Sprintf("items[%d].", n)
		}
		if i.Item == nil {
			return jobs.Push{}, invalid("%sitem is missing: what is to be pushed?", where)
		}
		delay, err := delayOf(i.Delay)
		if err != nil {
			return jobs.Push{}, invalid("%s%v", where, err)
		}
		var data bytes.Buffer
		if err := json.Compact(&data, i.Item); err != nil {
			return jobs.Push{}, invalid("%sitem is not valid JSON: %v", where, err)
		}
		if deep(data.Bytes()) {
			return jobs.Push{}, invalid(
				"%sitem nests lists and objects more than %d deep: whoever pops it could not read it", where, maxDepth)
		}
		if data.Len() > h.maxItem {
			return jobs.Push{}, newProblem(http.StatusRequestEntityTooLarge, codeTooLarge,
				fmt.Sprintf("%sitem has %d bytes, and may have %d: put what is large elsewhere, and push where it is",
					where, data.Len(), h.maxItem))
		}
		op.Jobs[n] = jobs.NewJob{Data: data.Bytes(), Priority: i.Priority, Delay: delay, Trace: trace}
		fmt.Fprintf(digest, "%d %d %d\n", i.Priority, delay, data.Len())
		digest.Write(data.Bytes())
	}
	op.Digest = base64.RawStdEncoding.EncodeToString(digest.Sum(nil)[:16])
	return op, nil
}

// maxDepth bounds how deep a job nests. encoding/json gives up at 10,000 levels, and answers add
// some to those of the job.
const maxDepth = 9_000

// deep reports whether JSON nests deeper than that.
func deep(data []byte) bool {
	depth, quoted := 0, false
	for n := 0; n < len(data); n++ {
		switch c := data[n]; {
		case c == '\\':
			n++ // only within quotes
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// traceOf is the trace context that a job carries: that of the request, if it is sampled.
func (h *jobHandlers) traceOf(c *call) string {
	carrier := propagation.MapCarrier{}
	if c.span.SpanContext().IsSampled() {
		h.texts.Inject(c.Context(), carrier)
	}
	return carrier["traceparent"]
}

// ---- Pop and the operations on its lock.

type popped struct {
	Items     []json.RawMessage `json:"items"`
	Count     int               `json:"count"`
	Locked    *bool             `json:"locked,omitempty"`
	LockID    string            `json:"lock_id,omitempty"`
	ExpiresAt *float64          `json:"lock_expires_at,omitempty"`
	Details   []detail          `json:"details,omitempty"`
}

// detail has the facts of a job besides its data.
type detail struct {
	ID       int64   `json:"id"`
	Priority int     `json:"priority"`
	Attempts int     `json:"attempts"`
	PushedAt float64 `json:"pushed_at"`
	Trace    string  `json:"traceparent,omitempty"`
}

func detailOf(i jobs.Job) detail {
	return detail{i.ID, i.Priority, i.Attempts, unixSeconds(i.PushedAt), i.Trace}
}

func (h *jobHandlers) pop(c *call) (answer, error) {
	if err := known(c, "require_ack", "ttl_seconds", "count", "mode", "details"); err != nil {
		return answer{}, err
	}
	withAck, err := yes(c, "require_ack")
	if err != nil {
		return answer{}, err
	}
	details, err := yes(c, "details")
	if err != nil {
		return answer{}, err
	}
	op := jobs.Pop{Mode: jobs.Mode(c.URL.Query().Get("mode")), Bytes: maxAnswer}
	if op.Count, err = whole(c, "count", 1); err != nil {
		return answer{}, err
	}
	ttl, err := whole(c, "ttl_seconds", 0)
	if err != nil {
		return answer{}, err
	}
	if c.URL.Query().Get("ttl_seconds") != "" {
		op.TTL = ttlOf(ttl)
	}
	if withAck {
		op.LockID = h.ids.next()
	}
	r, err := h.operations.do(c, op)
	if err != nil {
		return answer{}, err
	}
	out := popped{Items: make([]json.RawMessage, len(r.Items)), Count: r.Count}
	for n, i := range r.Items {
		out.Items[n] = i.Data
		if details {
			out.Details = append(out.Details, detailOf(i))
		}
	}
	if withAck {
		locked := r.Lock != nil
		out.Locked = &locked
		if locked {
			at := unixSeconds(r.Lock.ExpiresAt)
			out.LockID, out.ExpiresAt = r.Lock.ID, &at
		}
	}
	h.linkJobs(c, r.Items)
	return answer{body: out}, nil
}

// maxLinks bounds the links of a pop's span to the pushes of its jobs.
const maxLinks = 32

func (h *jobHandlers) linkJobs(c *call, items []jobs.Job) {
	if !c.span.IsRecording() {
		return
	}
	for _, i := range items[:min(len(items), maxLinks)] {
		if i.Trace != "" {
			from := h.texts.Extract(c.Context(), propagation.MapCarrier{"traceparent": i.Trace})
			c.span.AddLink(trace.LinkFromContext(from))
		}
	}
}

type lockBody struct {
	LockID *string `json:"lock_id"`
}

// maxLockID is longer than any lock's id. Longer ones are not looked up.
const maxLockID = 64

// lockOf is the lock that a request is about.
func (b lockBody) lockOf() (string, error) {
	if b.LockID == nil || *b.LockID == "" {
		return "", invalid("lock_id is required: give the one that the pop has answered").say("lock_id is required")
	}
	if len(*b.LockID) > maxLockID {
		return "", invalid("lock_id: this one has %d characters, and none has more than %d: give the one that the "+
			"pop has answered", len(*b.LockID), maxLockID)
	}
	return *b.LockID, nil
}

type acknowledged struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Items   int    `json:"items_acknowledged"`
}

func (h *jobHandlers) acknowledge(c *call) (answer, error) {
	if err := known(c); err != nil {
		return answer{}, err
	}
	var body lockBody
	if err := h.bodies.read(c, &body); err != nil {
		return answer{}, err
	}
	id, err := body.lockOf()
	if err != nil {
		return answer{}, err
	}
	r, err := h.operations.do(c, jobs.Acknowledge{LockID: id})
	if err != nil {
		return answer{}, err
	}
	return answer{body: acknowledged{true, "Items acknowledged successfully", r.Count}}, nil
}

type extended struct {
	Success   bool    `json:"success"`
	Message   string  `json:"message"`
	LockID    string  `json:"lock_id"`
	ExpiresAt float64 `json:"lock_expires_at"`
}

func (h *jobHandlers) extend(c *call) (answer, error) {
	if err := known(c); err != nil {
		return answer{}, err
	}
	var body struct {
		lockBody
		TTL *int `json:"ttl_seconds"`
	}
	if err := h.bodies.read(c, &body); err != nil {
		return answer{}, err
	}
	id, err := body.lockOf()
	if err != nil {
		return answer{}, err
	}
	ttl := jobs.DefaultTTL
	if body.TTL != nil {
		ttl = ttlOf(*body.TTL)
	}
	r, err := h.operations.do(c, jobs.Extend{LockID: id, TTL: ttl})
	if err != nil {
		return answer{}, err
	}
	return answer{body: extended{true, "Lock extended", id, unixSeconds(r.Lock.ExpiresAt)}}, nil
}

type returned struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Items   int    `json:"items_returned"`
	Died    int    `json:"items_dead"`
}

func (h *jobHandlers) nack(c *call) (answer, error) {
	if err := known(c); err != nil {
		return answer{}, err
	}
	var body struct {
		lockBody
		Delay  float64 `json:"delay_seconds"`
		Reason string  `json:"reason"`
	}
	if err := h.bodies.read(c, &body); err != nil {
		return answer{}, err
	}
	id, err := body.lockOf()
	if err != nil {
		return answer{}, err
	}
	delay, err := delayOf(body.Delay)
	if err != nil {
		return answer{}, err
	}
	r, err := h.operations.do(c, jobs.Return{LockID: id, Delay: delay, Reason: or(body.Reason, "it was returned")})
	if err != nil {
		return answer{}, err
	}
	return answer{body: returned{true, "Items returned to the queue", r.Count - r.Died, r.Died}}, nil
}
