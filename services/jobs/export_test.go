package jobserver

import "time"

// Hurry shortens the time in which headers and bodies must come. It is for before Run.
func (s *Server) Hurry(headers, all time.Duration) {
	s.http.ReadHeaderTimeout, s.http.ReadTimeout = headers, all
}
