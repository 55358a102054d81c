package broker

import "context"

type otherAccount struct{}

// WithOtherAccount returns a context that [IsFromOtherAccount] recognises.
func WithOtherAccount(ctx context.Context) context.Context {
	return context.WithValue(ctx, otherAccount{}, true)
}

// IsFromOtherAccount reports, with the context of a handler of requests, whether the broker
// separates the requester from this process, so that it does not respond in the name of the
// requester wherever this one says.
func IsFromOtherAccount(ctx context.Context) bool { return ctx.Value(otherAccount{}) != nil }
