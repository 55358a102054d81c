package broker

import "context"

type requesterKey struct{}

// WithRequester returns a context with the name that [Requester] returns.
func WithRequester(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, requesterKey{}, name)
}

// Requester names, with the context of a handler of requests, the connection that has sent the
// request. A client may choose the name, and may have several connections.
func Requester(ctx context.Context) string {
	name, _ := ctx.Value(requesterKey{}).(string)
	return name
}
