package guide

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"

	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/codec"
)

// Sealed is a codec that encrypts what JSON makes of a value.
type Sealed struct{ Key cipher.AEAD }

// Encode implements codec.Codec.
func (s Sealed) Encode(v any) (codec.Payload, error) {
	plain, err := codec.JSON{}.Encode(v)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, s.Key.NonceSize())
	rand.Read(nonce) // it never fails
	return s.Key.Seal(nonce, nonce, plain, nil), nil
}

// Decode implements codec.Codec.
func (s Sealed) Decode(p codec.Payload, v any) error {
	plain, err := s.open(p)
	if err != nil {
		return err
	}
	return codec.JSON{}.Decode(plain, v)
}

// DecodeStrict implements codec.Strict: inputs of starts by name are checked with it.
func (s Sealed) DecodeStrict(p codec.Payload, v any) error {
	plain, err := s.open(p)
	if err != nil {
		return err
	}
	return codec.JSON{}.DecodeStrict(plain, v)
}

func (s Sealed) open(p codec.Payload) (codec.Payload, error) {
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
func sealed(codec codec.Codec) func(*app.Config) {
	return func(c *app.Config) { c.Codec = codec }
}
