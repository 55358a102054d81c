// Command readme is the program of README.md. Its activities only pretend; examples/orders is
// larger.
package main

import (
	"github.com/rondo-run/rondo/examples/readme/orders"
	"github.com/rondo-run/rondo/pkg/app"
)

func main() { app.Main(orders.Parts...) }
