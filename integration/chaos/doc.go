// Package chaos has a test that runs a whole system as processes of its own, injects faults
// repeatedly while work goes on, and proves at the end that nothing was lost, done wrongly, or
// taken twice: `make chaos`.
//
//	clients ─────────────► n1 n2 n3 ◄── links ── orchestrators ── links ── proxies ──► PostgreSQL
//	(clients_test.go)      NATS     ◄── links ── workers
//
// A link forwards bytes between a service and a server, and can be cut, lose bytes, or be slow
// (link_test.go). A proxy forwards statements, and can let them fail (internal/pgfault).
//
//	what                                            where
//	the processes, and what each of them does       process_test.go
//	the fleet: all processes, links and servers     fleet_test.go
//	the faults: name, inject, heal                  faults_test.go
//	the work, with its right answers                work_test.go, integration/internal/work
//	the clients, and their acknowledgements         clients_test.go
//	a hostile client, and a flood                   strangers_test.go, integration/internal/hostile
//	the conditions at the end                       verdict_test.go
//	the table that is printed                       report_test.go
package chaos
