// Package client is a client in Go of the daemon that `ringcache serve` runs. It speaks the protocol of
// package wire, which docs/daemon.md describes.
//
// [Dial] connects and says hello. A [Client] connects again when its connection was lost, and repeats what
// was not answered. [Client.Map] maps the daemon's segment, where the bytes of objects are. Any goroutine
// may use a Client and a [Mapping].
package client
