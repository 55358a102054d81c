package jobserver

import "time"

// Hurry shortens the time in which headers and bodies must come. It is for before Run.
func (s *Server) Hurry(headers, all time.Duration) {
	s.http.ReadHeaderTimeout, s.http.ReadTimeout = headers, all
}

// HurryEnd shortens the time that incomplete bodies and all requests have after the shutdown has
// begun. It is for before Run.
func (s *Server) HurryEnd(bodies, all time.Duration) { s.bodies.grace, s.endWithin = bodies, all }
