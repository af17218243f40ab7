package server

import "time"

// WriteWithin sets how long a client may take to read an answer.
func (s *Server) WriteWithin(d time.Duration) { s.writeWithin = d }
