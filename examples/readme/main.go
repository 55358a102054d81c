// Command readme is the program of README.md: its orchestration and one of its activities. Those that are not here wait for a worker that has them; examples/orders is complete.
package main

import (
	"github.com/rondo-run/rondo/examples/readme/orders"
	"github.com/rondo-run/rondo/pkg/app"
)

func main() { app.Main(orders.Parts...) }
