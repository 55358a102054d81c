package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/internal/broker"
)

// keyValue is the bucket of small values. The NATS client can set a TTL only when it creates a key,
// so keyValue publishes the messages of the bucket itself.
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

// kvSubject returns the subject of a key.
func (n *names) kvSubject(key string) string {
	group, name, found := strings.Cut(key, "/")
	if !found || group == "" || name == "" {
		return "$KV." + n.kv + "." + keyOf(key)
	}
	return "$KV." + n.kv + "." + keyOf(group) + "." + keyOf(name)
}

// publish stores a message under a key.
func (k *keyValue) publish(ctx context.Context, key, operation string, value []byte, ttl time.Duration) error {
	m := &nats.Msg{Subject: k.kvSubject(key), Data: value, Header: nats.Header{headerOperation: {operation}}}
	if k.api != defaultAPI {
		m.Subject = k.api + m.Subject // another domain or account takes the messages of buckets there
	}
	var opts []jetstream.PublishOpt
	if ttl > 0 {
		opts = append(opts, jetstream.WithMsgTTL(ttl))
	}
	_, err := k.js.PublishMsg(ctx, m, opts...)
	return err
}

// Get implements broker.KV.
func (k *keyValue) Get(ctx context.Context, key string) ([]byte, error) {
	st := k.there.Load().kv
	if st == nil {
		return nil, k.unseen()
	}
	m, err := st.GetLastMsgForSubject(ctx, k.kvSubject(key))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, problem("get key "+key, err)
	}
	if m.Header.Get(headerOperation) != putOperation {
		return nil, nil
	}
	return append([]byte{}, m.Data...), nil
}

// Put implements broker.KV.
func (k *keyValue) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if k.there.Load().kv == nil {
		return k.unseen()
	}
	return problem("put key "+key, k.publish(ctx, key, putOperation, value, ttl))
}

// Delete implements broker.KV.
func (k *keyValue) Delete(ctx context.Context, key string) error {
	if k.there.Load().kv == nil {
		return k.unseen()
	}
	return problem("delete key "+key, k.publish(ctx, key, deleteOperation, nil, markerFor))
}

func (k *keyValue) unseen() error {
	return fmt.Errorf("nats: bucket %s cannot be seen with these permissions, or was not there when the "+
		"connection was made", k.names.kv)
}
