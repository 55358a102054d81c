package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// bucket returns an error if there is no bucket, or none that this connection may see.
func bucket(kv jetstream.KeyValue) (jetstream.KeyValue, error) {
	if kv == nil {
		return nil, errors.New(
			"nats: a bucket cannot be seen with these rights, or was not there when the connection was made")
	}
	return kv, nil
}

// keyOf encodes any text as a key of a bucket.
func keyOf(s string) string {
	s = strings.NewReplacer("%", "=", "~", "=7E", ":", "=3A", "@", "=40", "+", "=2B", ",", "=2C", "=",
		"=3D").Replace(events.EncodeToken(s))
	if len(s) <= maxConsumerName {
		return s
	}
	h := fnv.New64a()
	h.Write([]byte(s))
	return s[:maxConsumerName-17] + "_" + strconv.FormatUint(h.Sum64(), 16)
}

// leases are the leases of sessions, and those of jobs of orchestrators.
type leases struct {
	*resources
	values *keyValue // has those of jobs
}

// acquireTries bounds the attempts to write a lease: others may be as quick, or a replica that
// responds may be behind.
const acquireTries = 8

var errQuicker = errors.New("others were quicker, again and again")

// isJob reports whether a lease is that of a job of orchestrators.
func isJob(name string) bool { return strings.HasPrefix(name, events.ReservedPrefix) }

// acquireJob is Acquire for a job.
func (l *leases) acquireJob(ctx context.Context, job, by string) (string, error) {
	key := broker.KeyLease + job
	for range acquireTries {
		owner, place, err := l.values.last(ctx, key)
		if err != nil {
			return "", err
		}
		if owner != nil && string(owner) != by {
			return string(owner), nil
		}
		err = l.values.publish(ctx, key, putOperation, []byte(by),
			append(expiring(l.plan.config.SessionLease), jetstream.WithExpectLastSequencePerSubject(place))...)
		if err == nil {
			return by, nil
		}
		if !isChanged(err) { // otherwise another one was faster, or the lease has just expired
			return "", err
		}
	}
	return "", problem("claim job "+job, errQuicker)
}

// releaseJob is Release for a job.
func (l *leases) releaseJob(ctx context.Context, job, by string) error {
	key := broker.KeyLease + job
	owner, place, err := l.values.last(ctx, key)
	if err != nil || string(owner) != by {
		return err
	}
	err = l.values.publish(ctx, key, deleteOperation, nil,
		append(expiring(markerFor), jetstream.WithExpectLastSequencePerSubject(place))...)
	if isChanged(err) {
		return nil // it has expired
	}
	return err
}

// Acquire implements broker.Leases.
func (l *leases) Acquire(ctx context.Context, session, worker string) (string, error) {
	if isJob(session) {
		return l.acquireJob(ctx, session, worker)
	}
	kv, err := bucket(l.there.Load().sessions)
	if err != nil {
		return "", err
	}
	key := keyOf(session)
	for range acquireTries {
		_, err := kv.Create(ctx, key, []byte(worker))
		if err == nil {
			return worker, nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return "", problem("claim session "+session, l.crowded(err))
		}
		e, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue // it has just ended
		}
		if err != nil {
			return "", problem("claim session "+session, err)
		}
		if string(e.Value()) != worker {
			return string(e.Value()), nil
		}
		if _, err := kv.Update(ctx, key, []byte(worker), e.Revision()); err == nil {
			return worker, nil
		}
	}
	return "", problem("claim session "+session, errQuicker)
}

// crowded explains a refusal of NATS because there are too many sessions.
func (l *leases) crowded(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == streamFull {
		return fmt.Errorf("%w: bucket %s has its maximum of %d sessions; use fewer at once, or wait until leases "+
			"expire: %w", broker.ErrFull, l.names.sessions, maxSessions, err)
	}
	return err
}

// Release implements broker.Leases.
func (l *leases) Release(ctx context.Context, session, worker string) error {
	if isJob(session) {
		return l.releaseJob(ctx, session, worker)
	}
	kv, err := bucket(l.there.Load().sessions)
	if err != nil {
		return err
	}
	key := keyOf(session)
	e, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) || err == nil && string(e.Value()) != worker {
		return nil
	}
	if err == nil {
		err = kv.Delete(ctx, key, jetstream.LastRevision(e.Revision()))
	}
	return problem("release session "+session, err)
}

// Owner implements broker.Leases.
func (l *leases) Owner(ctx context.Context, session string) (string, error) {
	if isJob(session) {
		owner, err := l.values.Get(ctx, broker.KeyLease+session)
		return string(owner), err
	}
	kv, err := bucket(l.there.Load().sessions)
	if err != nil {
		return "", err
	}
	e, err := kv.Get(ctx, keyOf(session))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return "", nil
	}
	if err != nil {
		return "", problem("look who has session "+session, err)
	}
	return string(e.Value()), nil
}
