//go:build unix

package s3test

import "syscall"

// Stop stops the server: it takes connections, and does not answer.
func (s *Server) Stop() { s.t.Helper(); s.Signal(syscall.SIGSTOP) }

// Continue lets a stopped server go on.
func (s *Server) Continue() { s.t.Helper(); s.Signal(syscall.SIGCONT) }
