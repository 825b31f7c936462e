// Package zmtp is the connections of ZeroMQ (ZMTP 3.0), for sockets that route messages themselves: frames of one
// peer, whose sizes are bounded before there is room for them, and the greeting, which
// github.com/go-zeromq/zmq4 exchanges.
//
// See docs/decisions.md, "The library's wire, our own routing".
package zmtp
