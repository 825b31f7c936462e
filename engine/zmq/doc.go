// Package zmq is the transport of package engine over ZeroMQ, in pure Go.
//
// Its connections are those of internal/zmtp. The routing is our own: a
// frontend needs what the sockets of github.com/go-zeromq/zmq4 do not report, that a
// peer has gone, and that a message could not be delivered (ROUTER_MANDATORY of
// libzmq). Peers are distinguished by their connections, not by the identities that they
// claim.
//
// See docs/decisions.md, "The library's wire, our own routing".
package zmq
