package guide

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"

	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/events"
)

// Sealed is a codec that encrypts what JSON makes of a value.
type Sealed struct{ Key cipher.AEAD }

// Encode implements events.Codec.
func (s Sealed) Encode(v any) (events.Payload, error) {
	plain, err := events.JSON{}.Encode(v)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, s.Key.NonceSize())
	rand.Read(nonce) // it never fails
	return s.Key.Seal(nonce, nonce, plain, nil), nil
}

// Decode implements events.Codec.
func (s Sealed) Decode(p events.Payload, v any) error {
	plain, err := s.open(p)
	if err != nil {
		return err
	}
	return events.JSON{}.Decode(plain, v)
}

// DecodeStrict implements events.StrictCodec: inputs of starts by name are checked with it.
func (s Sealed) DecodeStrict(p events.Payload, v any) error {
	plain, err := s.open(p)
	if err != nil {
		return err
	}
	return events.JSON{}.DecodeStrict(plain, v)
}

func (s Sealed) open(p events.Payload) (events.Payload, error) {
	n := s.Key.NonceSize()
	switch {
	case len(p) == 0:
		return nil, nil // no value
	case len(p) < n:
		return nil, errors.New("it is not sealed")
	}
	return s.Key.Open(nil, p[:n], p[n:], nil)
}

// sealed makes a program use it, in orchestrators and workers alike: app.Configure(sealed(codec)).
func sealed(codec events.Codec) func(*app.Config) {
	return func(c *app.Config) { c.Orchestrator.Round.Codec = codec }
}
