package codec_test

import (
	"fmt"

	"github.com/rondo-run/rondo/pkg/codec"
)

func ExampleJSON() {
	p, err := codec.JSON{}.Encode(map[string]int{"cents": 4500})
	fmt.Println(p, err)
	var order struct{ Cents int }
	fmt.Println(codec.JSON{}.Decode(p, &order), order.Cents)
	// Output:
	// {"cents":4500} <nil>
	// <nil> 4500
}

func ExampleStrict() {
	var strict codec.Strict = codec.JSON{}
	var order struct{ Cents int }
	fmt.Println(strict.DecodeStrict(codec.Payload(`{"cents":4500,"crdit":1}`), &order))
	// Output: unknown field "crdit"
}
