// Package daemontest has only tests: they load a daemon that speaks the protocol of package daemon/wire, and
// judge its answers.
// The daemon is any process with a socket: a test's own, or `ringcache serve`.
//
// # Load
//
// Load runs sessions that pin, reserve, write, commit, abort, release and look, until its context ends. The
// bytes of an object follow from its space and number, so that every byte of every hit is verified, in the
// session's own mapping. Each session remembers what it was told is pinned: where its pins are, what it has
// reserved. The daemon may be killed and started again meanwhile; sessions wait for it and then expect all of
// that to be as it was.
//
// What was committed is reported, so that the caller can keep a Ledger beyond the ends of processes, and ask a
// daemon for all of it with Ledger.Check.
//
// # Lies
//
// Lie sends requests that no honest client sends. It judges only that each is answered or its connection
// closed: what honest clients see meanwhile is for an honest client, and what the daemon takes is for who
// started it.
package daemontest
