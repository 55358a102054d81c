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

// Right is something that a caller may do with a queue.
type Right string

// The rights.
const (
	Push   Right = "push"   // push items
	Pop    Right = "pop"    // pop items, and acknowledge, extend or return them
	Look   Right = "look"   // see how a queue stands, and what is dead
	Manage Right = "manage" // change settings, remove the queue or its dead items, and requeue these
)

// rights are all of them, in the order in which they are told.
var rights = []Right{Push, Pop, Look, Manage}

// Access says who may do what with queues. It is read from a file, and read again when that
// changes.
type Access struct {
	now  func() time.Time
	file *kept[*callers]
}

// OpenAccess reads an access file. The error tells everything that is wrong with it.
func OpenAccess(path string, log *slog.Logger) (*Access, error) {
	return openAccess(path, log, time.Now)
}

func openAccess(path string, log *slog.Logger, now func() time.Time) (*Access, error) {
	file, err := keep("the access file "+path, []string{path}, func(data [][]byte) (*callers, error) {
		return readCallers(data[0])
	}, log, now)
	if err != nil {
		return nil, err
	}
	return &Access{now: now, file: file}, nil
}

// Tokens reports whether anybody is known by a token.
func (a *Access) Tokens() bool { return len(a.file.get().byToken) > 0 }

// Certificates reports whether anybody is known by a client certificate.
func (a *Access) Certificates() bool { return len(a.file.get().byCertificate) > 0 }

// callers are those of a file.
type callers struct {
	all           []*Caller
	byToken       map[[sha256.Size]byte]*Caller
	byCertificate map[string]*Caller
}

// Caller is somebody who may do something.
type Caller struct {
	Name string
	// Rate is how many requests a second it may make; 0: as many as the others.
	Rate  float64
	allow []grant
}

// grant is what may be done with some queues.
type grant struct {
	queues []string // patterns
	rights []Right
}

// May reports whether the caller has a right to a queue.
func (c *Caller) May(right Right, queue string) bool {
	return slices.ContainsFunc(c.allow, func(g grant) bool {
		return slices.Contains(g.rights, right) && slices.ContainsFunc(g.queues, func(pattern string) bool {
			return matches(pattern, queue)
		})
	})
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
	for _, part := range parts[:len(parts)-1] { // the leftmost place leaves the most to what follows
		_, behind, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = behind
	}
	return strings.HasSuffix(name, parts[len(parts)-1])
}

// Who tells who makes a request: by the token, if there is one, and otherwise by the certificate.
// The error says what the caller has to do.
func (a *Access) Who(r *http.Request) (*Caller, error) {
	known := a.file.get()
	token, ok, err := bearer(r.Header)
	if err != nil {
		return nil, err
	}
	if ok {
		// Who does not know a token cannot come closer to its hash step by step, so how long
		// looking it up takes tells nothing.
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

// byCertificate finds who has a certificate that was verified when the connection was made.
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

// certificateNames are the names by which a certificate may be known: URIs, then DNS names; the
// common name only if it has none of these.
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
