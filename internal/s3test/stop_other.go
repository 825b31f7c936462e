//go:build !unix

package s3test

// Stop skips the test: processes can't be stopped here.
func (s *Server) Stop() { s.t.Skip("processes can't be stopped on this system") }

// Continue does nothing.
func (s *Server) Continue() {}
