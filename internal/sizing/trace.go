package sizing

import (
	"math/rand/v2"
	"runtime"
	"sync"
)

// Trace is what all hosts ask for, in the order of time.
type Trace struct {
	// Keys are the objects that are looked up. Those of one request are neighbours.
	Keys []int32
	// Ends are the ends of the requests among Keys; nil if each has one key.
	Ends []int32
	// Hosts has the host of each request.
	Hosts []uint16
	// Bytes are the sizes of objects by their keys; if there is one, it is that of all.
	Bytes []int64
	// Parents are the objects without which an object is worthless, by their keys, -1 for none; nil if none has any. A
	// parent stands right in front of its child in each request.
	Parents []int32
}

// MaxHosts is how many hosts there may be.
const MaxHosts = 10_000

// Requests returns how many there are.
func (t *Trace) Requests() int {
	if t.Ends == nil {
		return len(t.Keys)
	}
	return len(t.Ends)
}

// Request returns where the keys of a request are.
func (t *Trace) Request(i int) (from, to int) {
	switch {
	case t.Ends == nil:
		return i, i + 1
	case i == 0:
		return 0, int(t.Ends[0])
	}
	return int(t.Ends[i-1]), int(t.Ends[i])
}

// Size returns the bytes of an object.
func (t *Trace) Size(id int32) int64 {
	if len(t.Bytes) == 1 {
		return t.Bytes[0]
	}
	return t.Bytes[id]
}

// Parent returns the parent of an object, or -1.
func (t *Trace) Parent(id int32) int32 {
	if t.Parents == nil {
		return none
	}
	return t.Parents[id]
}

// Cuts reports whether what is behind an object is worthless without it: whether that is its child.
func (t *Trace) Cuts(k, to int) bool { return k+1 < to && t.Parent(t.Keys[k+1]) == t.Keys[k] }

// Spread gives each request to any of so many hosts.
func (t *Trace) Spread(hosts int, rng *rand.Rand) {
	t.Hosts = make([]uint16, t.Requests())
	for i := range t.Hosts {
		t.Hosts[i] = uint16(rng.IntN(hosts))
	}
}

// Replay returns where the host that asks for a key finds it: in one of its own levels, which are empty at first,
// or nowhere.
func (t *Trace) Replay(hosts int, memory, disk int64) []Found {
	ends := make([]int, hosts+1) // of the requests of each host in order
	for _, h := range t.Hosts {
		ends[h+1]++
	}
	for h := range hosts {
		ends[h+1] += ends[h]
	}
	order := make([]int32, t.Requests())
	next := append([]int(nil), ends[:hosts]...)
	for i, h := range t.Hosts {
		order[next[h]] = int32(i)
		next[h]++
	}
	found := make([]Found, len(t.Keys))
	queue := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for h := range queue {
				host := NewHost(memory, disk)
				for _, i := range order[ends[h]:ends[h+1]] {
					from, to := t.Request(int(i))
					for k := from; k < to; k++ {
						id := t.Keys[k]
						found[k] = host.Use(id, t.Parent(id), t.Size(id))
					}
				}
			}
		})
	}
	for h := range hosts {
		queue <- h
	}
	close(queue)
	wg.Wait()
	return found
}
