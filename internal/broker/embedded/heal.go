package embedded

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"
)

// A stream of nats-server that has failed to write, because the disk was full for instance, stores
// nothing until the server is restarted, even if the disk has room again. It does not respond to
// publishers.

// writeErrors are parts of the errors that such a server logs.
var writeErrors = []string{"JetStream failed to store a msg on stream", "ritical write error"}

// noteUnwritten notes an error of a server that has failed to write.
func (l *logger) noteUnwritten(text string) {
	for _, part := range writeErrors {
		if strings.Contains(text, part) {
			l.mu.Lock()
			l.unwritten = true
			l.mu.Unlock()
		}
	}
}

func (l *logger) hasFailed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unwritten
}

// heal restarts a server that has failed to write, once there is room. It ends with this run of the
// server.
func (s *Server) heal(ended chan struct{}, log *logger) {
	tick := time.NewTicker(s.options.Heal)
	defer tick.Stop()
	room := s.options.room
	if room == nil {
		room = tryRoom
	}
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		if log.hasFailed() && room(s.options.Dir) == nil {
			break
		}
	}
	s.mend(ended, log, tick.C)
}

// mend restarts the server until it runs, unless this run of it has ended in another way.
func (s *Server) mend(ended chan struct{}, log *logger, pause <-chan time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.ended == ended && !s.closed {
		log.say(slog.LevelWarn, "restarting, because it has failed to write and there is room again", nil)
		err := s.restart()
		if err == nil {
			return
		}
		log.say(slog.LevelError, "it cannot be restarted, trying again: %v", []any{err})
		s.mu.Unlock()
		<-pause
		s.mu.Lock()
	}
}

// tryRoom tries to write a MiB.
func tryRoom(dir string) error {
	f, err := os.CreateTemp(dir, "try-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 1<<20))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}
