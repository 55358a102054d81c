package jobserver

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Permission is a permission of a caller for a job queue.
type Permission string

// The permissions.
const (
	Push   Permission = "push"   // push jobs
	Pop    Permission = "pop"    // pop jobs, and acknowledge, extend or return them
	Look   Permission = "look"   // read the state of a queue, and its dead jobs
	Manage Permission = "manage" // change settings (but see MayStart), remove the queue or its dead jobs, requeue these
)

// permissions are all of them, in the order of error messages.
var permissions = []Permission{Push, Pop, Look, Manage}

// Access is the access control of the job queues. It is read from a file, and read again when the
// file changes.
type Access struct {
	now  func() time.Time
	file *kept[*callers]
}

// OpenAccess reads an access file. The error lists all its problems.
func OpenAccess(path string, log *slog.Logger) (*Access, error) {
	return openAccess(path, log, time.Now, sinceNow())
}

func openAccess(path string, log *slog.Logger, now func() time.Time, elapsed func() time.Duration) (*Access, error) {
	file, err := keep("the access file "+path, []string{path}, func(data [][]byte) (*callers, error) {
		return readCallers(data[0])
	}, log, elapsed)
	if err != nil {
		return nil, err
	}
	return &Access{now: now, file: file}, nil
}

// Tokens reports whether a caller of the file has a token.
func (a *Access) Tokens() bool { return len(a.file.get().byToken) > 0 }

// Certificates reports whether a caller of the file has a client certificate.
func (a *Access) Certificates() bool { return len(a.file.get().byCertificate) > 0 }

// callers are the callers of a file.
type callers struct {
	all           []*Caller
	byToken       map[[sha256.Size]byte]*Caller
	byCertificate map[string]*Caller
}

// Caller is a client with permissions.
type Caller struct {
	Name string
	// Rate is its limit of requests a second; 0: the default.
	Rate  float64
	allow []grant
}

// grant has the permissions for some queues.
type grant struct {
	queues      []string // patterns
	permissions []Permission
	start       []string // patterns of the orchestrations that settings may have jobs start
}

// May reports whether the caller has a right to a queue.
func (c *Caller) May(right Permission, queue string) bool {
	return slices.ContainsFunc(c.allow, func(g grant) bool {
		return slices.Contains(g.permissions, right) && anyMatches(g.queues, queue)
	})
}

// MayStart reports whether the caller may have the jobs of a queue start an orchestration.
func (c *Caller) MayStart(orchestration, queue string) bool {
	return slices.ContainsFunc(c.allow, func(g grant) bool {
		return slices.Contains(g.permissions, Manage) && anyMatches(g.queues, queue) &&
			anyMatches(g.start, orchestration)
	})
}

func anyMatches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
}

// matches reports whether a name fits a pattern, in which * stands for any characters, also for
// none.
func matches(pattern, name string) bool {
	first, rest, starred := strings.Cut(pattern, "*")
	name, ok := strings.CutPrefix(name, first)
	if !starred || !ok {
		return ok && name == ""
	}
	parts := strings.Split(rest, "*")
	for _, part := range parts[:len(parts)-1] { // the leftmost match leaves the most to later parts
		_, behind, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = behind
	}
	return strings.HasSuffix(name, parts[len(parts)-1])
}

// [Access.Caller] returns the caller of a request: by the token, if there is one, and otherwise by
// the certificate. The error says what the client has to do.
func (a *Access) Caller(r *http.Request) (*Caller, error) {
	known := a.file.get()
	token, ok, err := bearer(r.Header)
	if err != nil {
		return nil, err
	}
	if ok {
		// A client without a token cannot approach its hash step by step, so the time of the
		// look-up reveals nothing.
		if c := known.byToken[sha256.Sum256([]byte(token))]; c != nil {
			return c, nil
		}
		return nil, errors.New(
			"nobody has this token; ask who runs the queues for one, or have the hash of yours " +
				"written into the access file")
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 && len(r.TLS.PeerCertificates) > 0 {
		return a.byCertificate(known, r.TLS.PeerCertificates[0])
	}
	switch {
	case len(known.byCertificate) == 0:
		return nil, errors.New("who is that? Send a token in the header `Authorization: Bearer TOKEN`")
	case len(known.byToken) == 0:
		return nil, errors.New("who is that? Connect with a client certificate")
	}
	return nil, errors.New("who is that? Send a token in the header `Authorization: Bearer TOKEN`, or connect with " +
		"a client certificate")
}

// byCertificate returns the caller with a certificate that was verified when the connection was
// made.
func (a *Access) byCertificate(known *callers, certificate *x509.Certificate) (*Caller, error) {
	if now := a.now(); now.After(certificate.NotAfter) { // the connection may be older
		return nil, fmt.Errorf("the client certificate has expired at %s; connect with a new one",
			certificate.NotAfter.UTC().Format(time.RFC3339))
	}
	names := certificateNames(certificate)
	for _, name := range names {
		if c := known.byCertificate[name]; c != nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("nobody has a client certificate of this name (%s); have one of its names written into "+
		"the access file", cmp.Or(strings.Join(names, ", "), "it has none"))
}

// certificateNames are the names that may identify a certificate: URIs, then DNS names; the common
// name only if it has none of these.
func certificateNames(c *x509.Certificate) (names []string) {
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	names = append(names, c.DNSNames...)
	// An authority that may only give certain names may give any common name.
	if len(names) == 0 && c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	return names
}

// maxToken bounds the length of a token.
const maxToken = 4096

// bearer gives the token of a request. No error repeats any of the header, because it may be a
// secret also where it is malformed.
func bearer(h http.Header) (token string, ok bool, err error) {
	all := h.Values("Authorization")
	switch len(all) {
	case 0:
		return "", false, nil
	case 1:
	default:
		return "", false, errors.New(
			"the request has several Authorization headers; send one, `Authorization: Bearer TOKEN`")
	}
	scheme, token, _ := strings.Cut(all[0], " ")
	switch {
	case !strings.EqualFold(scheme, "Bearer"):
		return "", false, errors.New(
			"the Authorization header has another scheme than Bearer; send `Authorization: Bearer TOKEN`")
	case token == "" || len(token) > maxToken || strings.ContainsFunc(token, notInToken):
		return "", false, fmt.Errorf(
			"the token in the Authorization header is malformed; it has 1 to %d letters, digits, and the characters "+
				"- . _ ~ + / =", maxToken)
	}
	return token, true, nil
}

func notInToken(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-._~+/=", c))
}
