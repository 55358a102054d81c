package guide

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"io"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

func testCodec(t *testing.T) Sealed {
	t.Helper()
	block, err := aes.NewCipher([]byte("a key of 16 byte"))
	must(t, err)
	key, err := cipher.NewGCM(block)
	must(t, err)
	return Sealed{key}
}

func TestSealed(t *testing.T) {
	env := virtual(t, rondotest.UseCodec(testCodec(t)), Sell.Bind(sell), Ship.Bind(ship), Charge.Bind(charge),
		noting(Reserve, new([]Reservation), func(Reservation) (bool, error) { return true, nil }))
	parcel, err := Sell.Run(t.Context(), env, Sale{"chair", Bill{"1111-2222", 4500}, "Bremen"},
		orchestration.ID("sale-1"))
	if parcel != "parcel to Bremen" || err != nil {
		t.Errorf("%q, %v", parcel, err)
	}
	history := env.Export("sale-1")
	if bytes.Contains(history, []byte("2222")) || bytes.Contains(history, []byte("Bremen")) {
		t.Errorf("the history tells:\n%s", history)
	}
	wantList(t, "warnings", env.Warnings())
	rondotest.Replay(t, history, rondotest.UseCodec(testCodec(t)), Sell.Bind(sell))
}

// TestErrorsAreNotSealed checks what the guide says about errors.
func TestErrorsAreNotSealed(t *testing.T) {
	env := virtual(t, rondotest.UseCodec(testCodec(t)), Collect.Bind(collect), Pick.Bind(pick))
	_, err := Collect.Run(t.Context(), env, 12, orchestration.ID("collect-1"))
	wantIs(t, err, orchestration.OfType(OutOfStock))
	wantIn(t, string(env.Export("collect-1")), `there are not 12 chairs`)
	wantIn(t, string(env.Export("collect-1")), `"Left": 3`)
}

func TestPlainInputForASealedSystem(t *testing.T) {
	env := virtual(t, rondotest.UseCodec(testCodec(t)), Collect.Bind(collect), Pick.Bind(pick))
	for input, text := range map[string]string{
		`1234567890123`: "invalid input: cipher: message authentication failed",
		`7`:             "invalid input: it is not sealed",
	} {
		must(t, env.Publish(t.Context(), events.Message{ID: "m" + input, Instance: "c-" + input,
			Content: &events.Start{Orchestration: "collect", Input: []byte(input)}}))
		_, err := Collect.Handle(env, "c-"+input).Wait(t.Context())
		wantError(t, err, text)
	}
}

// TestSealedOnServers runs a program with a codec.
func TestSealedOnServers(t *testing.T) {
	t.Parallel()
	config := app.Defaults(app.Dev)
	config.Dir, config.NATSListen, config.Listen = t.TempDir(), "127.0.0.1:0", "off"
	config.Stdout, config.Stderr = io.Discard, io.Discard
	sealed(testCodec(t))(&config)
	c, _ := run(t, config, Collect.Bind(collect), Pick.Bind(pick))
	out, err := Collect.Run(limited(t), c, 2, orchestration.ID("collect-1"))
	if out != "2 chairs" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	x, err := c.Instances().History(limited(t), "collect-1", 0)
	must(t, err)
	for _, e := range x.Events {
		if f, ok := e.Fact.(*events.Completed); ok && strings.Contains(f.Output.String(), "chairs") {
			t.Errorf("the history tells %s", f.Output)
		}
	}
}

func TestLimits(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	env := virtual(t, Stocktaking.Bind(func(ctx *orchestration.Context, s string) (string, error) {
		return large, nil
	}), Order.Bind(orderAtFirst),
		noting(Pack, new([]string), func(string) (string, error) { return large, nil }))
	const cure = "1048578 is over the limit of 983040; keep the data in a store and pass a reference to it"
	_, err := Stocktaking.Start(t.Context(), env, large)
	wantError(t, err, "input (bytes): "+cure)
	_, err = Order.Run(t.Context(), env, "tea")
	wantError(t, err, `activity "pack": result of activity "pack" (bytes): `+cure)
	_, err = Stocktaking.Run(t.Context(), env, "tea")
	wantError(t, err, `output of orchestration "stocktaking" (bytes): `+cure)
	_, err = Stocktaking.Start(t.Context(), env, "tea", orchestration.ID("x~1.4"))
	wantError(t, err, `instance id "x~1.4": an ending like "~1.4" is reserved for the ids of children; choose another id`)
}
