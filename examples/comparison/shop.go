package main

import (
	"context"
	"errors"
	"fmt"
)

// Order is what a customer wants.
type Order struct {
	Items   []Item
	Cents   int
	Card    string
	Address string
}

// Item is a number of pieces of one sort.
type Item struct {
	SKU   string
	Count int
}

// Receipt is the result of an order.
type Receipt struct{ Payment, Tracking string }

// large is from how many cents on an order needs an approval.
const large = 100_000

// The world: a warehouse, a bank and a carrier that only pretend. A service that gets a key that it
// has seen before gives the same answer and does nothing. A reservation ends by itself after some
// days, so the orchestration need not undo it.

var errDeclined = errors.New("the bank declines the card")

func reserve(_ context.Context, key string, item Item) (number string, err error) {
	return fmt.Sprintf("%d-%s-%s", item.Count, item.SKU, key), nil
}

func charge(_ context.Context, key, card string, _ int) (payment string, err error) {
	if card == "declined" {
		return "", errDeclined
	}
	return "payment-" + key, nil
}

func ship(_ context.Context, key string, o Order) (tracking string, err error) {
	if o.Address == "nowhere" {
		return "", errors.New("there is no way to nowhere")
	}
	return "parcel-" + key, nil
}

func refund(_ context.Context, _, payment string) (number string, err error) {
	return "refund-of-" + payment, nil
}
