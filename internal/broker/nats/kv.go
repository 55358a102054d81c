package natsbroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
)

// keyValue is two buckets of small values: one for the keys of the group [broker.KeyTask], which
// workers write, and one for all others. The NATS client can set a TTL only when it creates a key,
// so keyValue publishes the messages of the buckets itself.
type keyValue struct{ *resources }

var _ broker.KV = (*keyValue)(nil)

const (
	// headerOperation has the operation of a message of a bucket. NATS clients read a message
	// without the header as a value.
	headerOperation = "KV-Operation"
	// putOperation is in each value of keyValue, so that the acknowledgement that a client made
	// NATS send to a key, which has no headers, counts as no value.
	putOperation = "PUT"
	// deleteOperation is in the marker of a removed key.
	deleteOperation = "DEL"
)

// kvSubject returns the subject of a key, and reports whether its bucket is that of progress.
func (n *names) kvSubject(key string) (subject string, isProgress bool) {
	if task, is := strings.CutPrefix(key, broker.KeyTask); is && task != "" {
		return "$KV." + n.progress + "." + keyOf(task), true
	}
	group, name, found := strings.Cut(key, "/")
	if !found || group == "" || name == "" {
		return "$KV." + n.kv + "." + keyOf(key), false
	}
	return "$KV." + n.kv + "." + keyOf(group) + "." + keyOf(name), false
}

// find returns the subject of a key and the stream of its bucket.
func (k *keyValue) find(key string) (subject string, st jetstream.Stream, err error) {
	subject, isProgress := k.names.kvSubject(key)
	st, name := k.there.Load().kv, k.names.kv
	if isProgress {
		st, name = k.there.Load().progress, k.names.progress
	}
	if st == nil {
		err = fmt.Errorf("nats: bucket %s %w", name, ErrUnseen)
	}
	return subject, st, err
}

// publish stores a message under a key.
func (k *keyValue) publish(ctx context.Context, key, operation string, value []byte,
	opts ...jetstream.PublishOpt) error {
	what := map[string]string{putOperation: "put", deleteOperation: "delete"}[operation] + " key " + key
	subject, _, err := k.find(key)
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: subject, Data: value, Header: nats.Header{headerOperation: {operation}}}
	if k.api != defaultAPI {
		m.Subject = k.api + m.Subject // another domain or account takes the messages of buckets there
	}
	_, err = k.js.PublishMsg(ctx, m, opts...)
	return problem(what, err)
}

// Get implements broker.KV.
func (k *keyValue) Get(ctx context.Context, key string) ([]byte, error) {
	value, _, err := k.last(ctx, key)
	return value, err
}

// last returns the value of a key, and the place of its last message; 0 if there is none.
func (k *keyValue) last(ctx context.Context, key string) (value []byte, place uint64, err error) {
	subject, st, err := k.find(key)
	if err != nil {
		return nil, 0, err
	}
	m, err := st.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, problem("get key "+key, err)
	}
	if m.Header.Get(headerOperation) != putOperation {
		return nil, m.Sequence, nil
	}
	return append([]byte{}, m.Data...), m.Sequence, nil
}

// Put implements broker.KV.
func (k *keyValue) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if err := broker.CheckValue(key, value); err != nil {
		return err
	}
	return k.publish(ctx, key, putOperation, value, expiring(ttl)...)
}

func expiring(ttl time.Duration) []jetstream.PublishOpt {
	if ttl <= 0 {
		return nil
	}
	return []jetstream.PublishOpt{jetstream.WithMsgTTL(ttl)}
}

// Create implements broker.KV. The marker of a removed key may be the last message, and may expire
// meanwhile.
func (k *keyValue) Create(ctx context.Context, key string, value []byte) (ok bool, err error) {
	return k.publishIf(ctx, key, value, func(there []byte) bool { return there == nil })
}

// Replace implements broker.KV.
func (k *keyValue) Replace(ctx context.Context, key string, read, value []byte) (ok bool, err error) {
	return k.publishIf(ctx, key, value, func(there []byte) bool { return there != nil && bytes.Equal(there, read) })
}

// publishIf stores a value if may accepts the value that is there, nil for none.
func (k *keyValue) publishIf(ctx context.Context, key string, value []byte,
	may func(there []byte) bool) (ok bool, err error) {
	if err := broker.CheckValue(key, value); err != nil {
		return false, err
	}
	for {
		there, place, err := k.last(ctx, key)
		if err != nil || !may(there) {
			return false, err
		}
		err = k.publish(ctx, key, putOperation, value, jetstream.WithExpectLastSequencePerSubject(place))
		if !isChanged(err) {
			return err == nil, err
		}
	}
}

// Delete implements broker.KV.
func (k *keyValue) Delete(ctx context.Context, key string) error {
	return k.publish(ctx, key, deleteOperation, nil, expiring(markerFor)...)
}

// ErrUnseen means that a bucket was not found when the connection was made.
var ErrUnseen = errors.New("cannot be seen with these permissions, or was not there when the connection was made")
