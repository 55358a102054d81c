package query

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

const (
	// keepParts is how long the parts of an answer are kept after the last request for one of them,
	// at most until fetchWithin is over. maxKept bounds their bytes.
	keepParts = 30 * time.Second
	maxKept   = 64 << 20
	// muchKept is a number of bytes that no requester should have kept.
	muchKept = maxKept / 8
	// maxWhole bounds an answer in parts: answers are not trusted.
	maxWhole = 256 << 20
)

// wrapped is an answer that refers to its parts.
type wrapped struct {
	Parts *partsOf `json:"$parts"`
}

// partsOf says where the parts of an answer can be requested. Together they are gzip; Bytes is the
// uncompressed size.
type partsOf struct {
	Method string `json:"method"`
	Token  string `json:"token"`
	Count  int    `json:"count"`
	Bytes  int    `json:"bytes"`
}

// partQuestion requests a part.
type partQuestion struct {
	Token string `json:"token"`
	Part  int    `json:"part"`
}

// parts keeps answers that are too large for one message until they are fetched.
type parts struct {
	method string // of this process
	size   int

	mu    sync.Mutex
	kept  map[string]*keptAnswer // by token
	order []string               // oldest first
	bytes int
	of    map[string]int // bytes by requester
}

type keptAnswer struct {
	requester  string
	data       []byte
	made, used time.Time
}

// isOver reports whether the parts need not be kept any longer.
func (k *keptAnswer) isOver(now time.Time) bool {
	return now.Sub(k.used) >= keepParts || now.Sub(k.made) >= fetchWithin
}

func newParts(size int) *parts {
	return &parts{method: "parts-" + newToken(), size: size, kept: make(map[string]*keptAnswer),
		of: make(map[string]int)}
}

// newToken returns a unique name.
func newToken() string {
	var b [16]byte
	rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// wrap returns an answer as one message: the answer itself, or the reference to its parts.
func (p *parts) wrap(requester string, data []byte, now time.Time) ([]byte, error) {
	if len(data) <= p.size {
		return data, nil
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	token := newToken()
	if err := p.keep(requester, token, b.Bytes(), now); err != nil {
		return nil, err
	}
	return marshal(wrapped{&partsOf{Method: p.method, Token: token, Count: (b.Len() + p.size - 1) / p.size,
		Bytes: len(data)}})
}

// keep keeps an answer. If there is no room for it, keep drops the oldest one. If a requester has
// much of the room, keep drops the oldest of the requester that has the most instead: a client that
// asks for much drops its own ones. Requesters choose their names, so many with little each are
// perhaps one.
func (p *parts) keep(requester, token string, data []byte, now time.Time) error {
	if len(data) > maxKept {
		return &broker.ResponseError{Code: "too_large",
			Message: fmt.Sprintf("the answer has %d bytes, even compressed; ask for less at once", len(data))}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order = slices.DeleteFunc(p.order, func(token string) bool {
		k := p.kept[token]
		if k != nil && k.isOver(now) {
			p.drop(token)
		}
		return p.kept[token] == nil
	})
	p.of[requester] += len(data)
	for p.bytes+len(data) > maxKept {
		next := 0
		for i, token := range p.order {
			if of := p.of[p.kept[token].requester]; of > muchKept && of > p.of[p.kept[p.order[next]].requester] {
				next = i
			}
		}
		p.drop(p.order[next])
		p.order = slices.Delete(p.order, next, next+1)
	}
	p.kept[token] = &keptAnswer{requester: requester, data: data, made: now, used: now}
	p.order = append(p.order, token)
	p.bytes += len(data)
	return nil
}

// drop removes an answer, but not its token from the order.
func (p *parts) drop(token string) {
	if k := p.kept[token]; k != nil {
		p.bytes -= len(k.data)
		if p.of[k.requester] -= len(k.data); p.of[k.requester] == 0 {
			delete(p.of, k.requester)
		}
		delete(p.kept, token)
	}
}

// answer returns a part. Clients fetch the parts in order, so it drops the answer after the last.
func (p *parts) answer(_ context.Context, question []byte) ([]byte, error) {
	var q partQuestion
	if err := unmarshal(question, &q, true); err != nil {
		return nil, badQuestion("question for a part: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kept[q.Token]
	if k == nil || q.Part < 0 || q.Part > (len(k.data)-1)/p.size {
		return nil, &broker.ResponseError{Code: codeGone,
			Message: "this part of the answer is not there any more; ask again"}
	}
	k.used = time.Now()
	end := min((q.Part+1)*p.size, len(k.data))
	if end == len(k.data) {
		p.drop(q.Token)
	}
	return k.data[q.Part*p.size : end], nil
}

// unwrap returns the whole of an answer. The second result is false if its parts are gone, so that
// the request has to be repeated.
//
// Each part has the time limit of a request: over a slow connection, all of them take longer.
func unwrap(ctx context.Context, b broker.Requests, answer []byte, patience time.Duration) ([]byte, bool, error) {
	if !bytes.HasPrefix(answer, []byte(`{"$parts":`)) {
		return answer, true, nil
	}
	var w wrapped
	if err := unmarshal(answer, &w, false); err != nil {
		return nil, false, badAnswer(err)
	}
	p := w.Parts
	if p == nil || p.Count < 1 || p.Count > maxWhole/minMaxAnswer || p.Bytes < 0 || p.Bytes > maxWhole {
		return nil, false, badAnswer(errors.New("its parts make no sense"))
	}
	var packed bytes.Buffer
	for i := range p.Count {
		q, err := marshal(partQuestion{p.Token, i})
		if err != nil {
			return nil, false, err
		}
		part, err := requestPart(ctx, b, p.Method, q, patience)
		var a *broker.ResponseError
		switch {
		case errors.As(err, &a) && a.Code == codeGone, errors.Is(err, broker.ErrNoResponders):
			// dropped, or the process that kept it has gone
			return nil, false, nil
		case err != nil:
			return nil, false, err
		}
		if packed.Len()+len(part) > maxWhole {
			return nil, false, badAnswer(errors.New("its parts are too large"))
		}
		packed.Write(part)
	}
	z, err := gzip.NewReader(&packed)
	if err != nil {
		return nil, false, badAnswer(err)
	}
	whole, err := io.ReadAll(io.LimitReader(z, int64(p.Bytes)+1))
	if err == nil && len(whole) != p.Bytes {
		err = fmt.Errorf("its parts do not hold %d bytes", p.Bytes)
	}
	if err != nil {
		return nil, false, badAnswer(err)
	}
	return whole, true, nil
}

func requestPart(ctx context.Context, b broker.Requests, method string, question []byte,
	patience time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return b.Request(ctx, method, question)
}

// badAnswer returns the error for an invalid answer.
func badAnswer(err error) error { return fmt.Errorf("the answer cannot be read: %w", err) }
