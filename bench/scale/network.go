package main

import "container/heap"

// network is how hosts and the store are connected: each by a link that carries one object after the other, in
// both directions at a time. The store begins one request after the other.
type network struct {
	Host    float64 // bytes a second of the link of a host
	Store   float64 // bytes a second of the link of the store
	Delay   float64 // seconds one way
	Service float64 // seconds for a request, during which the store begins no other
}

// line serves in the order in which it is asked to.
type line struct {
	free float64 // when it has nothing left to do
	busy float64 // seconds of work so far
}

// serve returns when work that comes at a time begins.
func (l *line) serve(at, seconds float64) (begin float64) {
	begin = max(at, l.free)
	l.free = begin + seconds
	l.busy += seconds
	return begin
}

// links are all lines of a network.
type links struct {
	network
	begins             line   // requests of the store
	storeIn, storeOut  line   // its link
	hostsIn, hostsOut  []line // theirs
	fetched, delivered float64
}

func newLinks(n network, hosts int) *links {
	return &links{network: n, hostsIn: make([]line, hosts), hostsOut: make([]line, hosts)}
}

// fetch returns when a host that asks for an object has all of it.
func (l *links) fetch(at float64, host int, bytes float64) float64 {
	at = l.begins.serve(at+l.Delay, l.Service) + l.Service
	sends := l.storeOut.serve(at, bytes/l.Store)
	// The first bytes go on while the last are still to come.
	begin := l.hostsIn[host].serve(sends+l.Delay, bytes/l.Host)
	l.fetched += bytes
	return max(begin+bytes/l.Host, sends+bytes/l.Store+l.Delay)
}

// miss returns when a host that asks for an object knows that the store does not have it.
func (l *links) miss(at float64) float64 {
	return l.begins.serve(at+l.Delay, l.Service) + l.Service + l.Delay
}

// deliver returns when the store has all of an object that a host sends.
func (l *links) deliver(at float64, host int, bytes float64) float64 {
	sends := l.hostsOut[host].serve(at, bytes/l.Host)
	begin := l.storeIn.serve(sends+l.Delay, bytes/l.Store)
	l.delivered += bytes
	return max(begin+bytes/l.Store, sends+bytes/l.Host+l.Delay)
}

// event is an object that a host has computed, or that the store has got.
type event struct {
	at    float64
	order int // of equal times
	host  int
	key   int32
	got   bool
}

// events are those to come, the next one first.
type events struct {
	all  []event
	made int
}

func (e *events) Len() int { return len(e.all) }
func (e *events) Less(i, j int) bool {
	a, b := e.all[i], e.all[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}
func (e *events) Swap(i, j int) { e.all[i], e.all[j] = e.all[j], e.all[i] }

// Push is for package heap.
func (e *events) Push(x any) { e.all = append(e.all, x.(event)) }

// Pop is for package heap.
func (e *events) Pop() any {
	last := e.all[len(e.all)-1]
	e.all = e.all[:len(e.all)-1]
	return last
}

func (e *events) add(x event) {
	e.made++
	x.order = e.made
	heap.Push(e, x)
}

// next takes the next event up to a time.
func (e *events) next(until float64) (event, bool) {
	if len(e.all) == 0 || e.all[0].at > until {
		return event{}, false
	}
	return heap.Pop(e).(event), true
}
