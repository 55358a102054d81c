package guide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/rondo-run/rondo/pkg/activity"
)

// Bank is a bank on the network.
type Bank struct{ URL string }

func (b Bank) charge(ctx context.Context, bill Bill) (string, error) {
	status, answer, err := b.post(ctx, "/charges", activity.Info(ctx).IdempotencyKey, bill)
	switch {
	case err != nil:
		return "", err // tried again, with the same key
	case status == http.StatusPaymentRequired:
		return "", activity.Errorf("card_declined", "the bank says: %s", answer)
	case status == http.StatusBadRequest:
		return "", activity.NonRetryable(errors.New("the bank does not understand us"))
	case status != http.StatusOK:
		return "", fmt.Errorf("the bank says: %d", status)
	}
	return answer, nil
}

// post sends a bill to the bank, with a key by which the bank knows whether it has had it before.
func (b Bank) post(ctx context.Context, path, key string, bill Bill) (status int, answer string, err error) {
	form := url.Values{"card": {bill.Card}, "cents": {strconv.Itoa(bill.Cents)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return res.StatusCode, string(data), err
}
