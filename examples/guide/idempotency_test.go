package guide

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// ledger is a bank that takes the money for each key once. Its answer to the first request is lost.
type ledger struct {
	asked, taken int
	receipts     map[string]string
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.asked++
	switch key := r.Header.Get("Idempotency-Key"); {
	case r.FormValue("card") == "expired":
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = io.WriteString(w, "the card has expired")
		return
	case r.FormValue("card") == "":
		w.WriteHeader(http.StatusBadRequest)
		return
	case l.receipts[key] == "":
		l.taken++
		l.receipts[key] = "receipt " + r.FormValue("cents")
		if l.taken == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fallthrough
	default:
		_, _ = io.WriteString(w, l.receipts[key])
	}
}

func TestChargeOnce(t *testing.T) {
	l := &ledger{receipts: make(map[string]string)}
	server := httptest.NewServer(l)
	defer server.Close()
	env := virtual(t, Pay.Bind(pay), Charge.Bind(Bank{server.URL}.charge))
	receipt, err := Pay.Run(t.Context(), env, Bill{"1111", 4500}, orchestration.ID("pay-1"))
	if receipt != "receipt 4500" || err != nil {
		t.Errorf("%q, %v", receipt, err)
	}
	want(t, "asked", l.asked, 2)
	want(t, "taken", l.taken, 1)
	for key := range l.receipts {
		row, _ := env.Instance("pay-1")
		want(t, "key", key, "pay-1/"+row.Incarnation+"/1/2")
	}

	_, err = Pay.Run(t.Context(), env, Bill{"expired", 4500})
	wantIs(t, err, orchestration.OfType("card_declined"))
	_, err = Pay.Run(t.Context(), env, Bill{})
	wantError(t, err, `activity "charge": the bank does not understand us`)

	server.Close()
	_, err = Pay.Run(t.Context(), env, Bill{"1111", 1})
	var e *failure.Error
	if !errors.As(err, &e) || e.Attempts != 5 {
		t.Errorf("%v", err)
	}
}
