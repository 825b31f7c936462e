//go:build linux

package daemontest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/daemon/wire"
)

// attackers are the greedy clients of TestAttacks: what each wants without end, and in how many processes.
var attackers = []struct {
	name      string
	processes int
	do        func(*attacker)
}{
	{"slow readers", 4, (*attacker).slowReaders},
	{"idle after stat", 4, (*attacker).idleAfterStat},
	{"flood of lists", 1, (*attacker).floodLists},
	{"flood of hits", 1, (*attacker).floodHits},
	{"flood of misses", 1, (*attacker).floodMisses},
	{"flood of prefixes", 1, (*attacker).floodPrefixes},
	{"flood of reservations", 1, (*attacker).floodReservations},
	{"flood of clears", 1, (*attacker).floodClears},
	{"object records", 3, (*attacker).records},
	{"leases", 3, (*attacker).leases},
	{"bytes", 3, (*attacker).bytes},
	{"costs", 1, (*attacker).costs},
	{"cycles of parents", 1, (*attacker).cycles},
	{"connections", 3, (*attacker).connections},
	{"halves of requests", 2, (*attacker).halves},
	{"slow probes", 1, (*attacker).slowProbes},
}

// attackerRole is a process of an attacker. It prints "begun" when it is at it, and at the line "stop" how
// many attacks that were.
type attackerRole struct {
	Name         string
	Number       int // of the processes of this attacker
	Socket, HTTP string
}

type attacker struct {
	attackerRole
	begin   func() // says that the attack is on
	attacks atomic.Int64
}

func (r *attackerRole) run() {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 10) // it is the daemon's time that the attack is about, not the machine's
	a := &attacker{attackerRole: *r, begin: sync.OnceFunc(func() { say("begun") })}
	for _, x := range attackers {
		if x.name == r.Name {
			go x.do(a)
		}
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		n := a.attacks.Load()
		say("%d", n)
	}
}

const (
	attackSpace = "attack"
	crowd250    = 250 // connections: what a process may have, about
	longNote    = 4096
)

// open opens connections with a session each, as many as it may, but at most n.
func (a *attacker) open(n int) (list []*rawClient) {
	for i := range n {
		c, err := a.dial(i)
		if err != nil {
			break
		}
		list = append(list, c)
	}
	return list
}

// rawClient is a client that reads and writes what it likes.
type rawClient struct {
	net.Conn
	r  *wire.Reader
	id uint64
}

func (a *attacker) dial(i int) (*rawClient, error) {
	conn, err := net.DialTimeout("unix", a.Socket, patience)
	if err != nil {
		return nil, err
	}
	c := &rawClient{Conn: conn, r: wire.NewReader(conn, wire.MaxReply)}
	var p wire.Reply
	err = c.call(&wire.Request{Op: wire.Hello, Version: wire.Version, Session: fmt.Sprintf("attacker-%d-%d", a.Number, i), Client: "attacker"}, &p)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// call sends a request and reads the reply. An error that the daemon answers is one.
func (c *rawClient) call(q *wire.Request, p *wire.Reply) error {
	c.id++
	q.ID = c.id
	b, err := wire.AppendRequest(nil, q)
	if err != nil {
		return err
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	body, err := c.r.Next()
	if err != nil {
		return err
	}
	if err := wire.DecodeReply(body, p); err != nil {
		return err
	}
	if p.Error != nil {
		return p.Error
	}
	return nil
}

func attackNames(prefix string, n, width int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", prefix, i)
		names[i] += strings.Repeat("x", max(0, width-len(names[i])))
	}
	return names
}

// fill stores small objects with notes. It reports false if it could not store any.
func (a *attacker) fill(c *rawClient, names []string, note int) bool {
	stored := 0
	for first := 0; first < len(names); first += 200 {
		part := names[first:min(len(names), first+200)]
		objects := make([]wire.Object, len(part))
		for i, n := range part {
			objects[i] = wire.Object{Name: n, Size: 1, Note: make([]byte, note)}
		}
		var p wire.Reply
		if c.call(&wire.Request{Op: wire.Reserve, Lease: "fill", Space: attackSpace, Objects: objects}, &p) != nil {
			return stored > 0
		}
		if c.call(&wire.Request{Op: wire.Commit, Lease: "fill", Space: attackSpace, Names: part}, &p) != nil {
			return stored > 0
		}
		stored += len(part)
	}
	return stored > 0
}

// stats asks for what many notes are, until that is known.
func (a *attacker) stats(c *rawClient, names []string) {
	for range 200 {
		var p wire.Reply
		if c.call(&wire.Request{Op: wire.Stat, Space: attackSpace, Names: names}, &p) != nil {
			return
		}
		a.attacks.Add(1)
		pending := false
		for _, v := range p.Items {
			pending = pending || v.Status == wire.StatusPending
		}
		if !pending {
			return
		}
		time.Sleep(3 * time.Millisecond)
	}
}

// slowReaders ask for answers of 4 MiB on all connections, and read none.
func (a *attacker) slowReaders() {
	names := attackNames("n", 1000, 0)
	for {
		list := a.open(crowd250)
		if len(list) == 0 {
			continue
		}
		a.fill(list[0], names, longNote)
		a.begin()
		var wg sync.WaitGroup
		for _, c := range list {
			wg.Go(func() {
				a.stats(c, names)
				b, err := wire.AppendRequest(nil, &wire.Request{ID: 1 << 40, Op: wire.Stat, Space: attackSpace, Names: names})
				if err == nil {
					_, _ = c.Write(b)
				}
			})
		}
		wg.Wait()
		time.Sleep(3 * time.Second)
		for _, c := range list {
			_ = c.Close()
		}
	}
}

// idleAfterStat reads all answers, and is idle then.
func (a *attacker) idleAfterStat() {
	names := attackNames("n", 1000, 0)
	list := a.open(200)
	if len(list) > 0 {
		a.fill(list[0], names, longNote)
	}
	a.begin()
	for {
		for _, c := range list {
			a.stats(c, names)
		}
		time.Sleep(time.Second)
	}
}

// flood sends the same requests on all connections, as fast as the daemon takes them.
func (a *attacker) flood(list []*rawClient, requests ...wire.Request) {
	var b []byte
	for _, q := range requests {
		q.ID = 1 << 40
		var err error
		if b, err = wire.AppendRequest(b, &q); err != nil {
			panic(err)
		}
	}
	for _, c := range list {
		go func() {
			for {
				a.attacks.Add(int64(len(requests)))
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}()
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	a.begin()
}

func (a *attacker) floodLists() {
	list := a.open(crowd250)
	names := attackNames("n", 1, 0)
	a.fill(list[0], names, 0)
	for _, c := range list[:2] {
		for k := range 1020 {
			var p wire.Reply
			if c.call(&wire.Request{Op: wire.Pin, Lease: fmt.Sprintf("%0128d", k), Space: attackSpace, Names: names, Seconds: 3600}, &p) != nil {
				break
			}
		}
	}
	a.flood(list, wire.Request{Op: wire.Stat, List: true})
}

func (a *attacker) floodHits() {
	list := a.open(crowd250)
	names := attackNames("n", 1000, 0)
	a.fill(list[0], names, 0)
	a.flood(list, wire.Request{Op: wire.Pin, Lease: "flood", Space: attackSpace, Names: names}, wire.Request{Op: wire.Release, Leases: []string{"flood"}})
}

func (a *attacker) floodMisses() {
	a.flood(a.open(crowd250), wire.Request{Op: wire.Pin, Lease: "flood", Space: attackSpace, Names: attackNames("z", 1000, 900)})
}

func (a *attacker) floodPrefixes() {
	list := a.open(crowd250)
	names := attackNames("n", 1000, 0)
	a.fill(list[0], names, 0)
	a.flood(list, wire.Request{Op: wire.Pin, Lease: "flood", Space: attackSpace, Names: names, Prefix: true}, wire.Request{Op: wire.Release, Leases: []string{"flood"}})
}

func (a *attacker) floodReservations() {
	names := attackNames("z", 1000, 900)
	objects := make([]wire.Object, len(names))
	for i, n := range names {
		objects[i] = wire.Object{Name: n, Size: 1}
	}
	a.flood(a.open(crowd250), wire.Request{Op: wire.Reserve, Lease: "flood", Space: attackSpace, Objects: objects},
		wire.Request{Op: wire.Abort, Lease: "flood", Space: attackSpace, Names: names})
}

func (a *attacker) floodClears() {
	a.flood(a.open(crowd250), wire.Request{Op: wire.Clear, Space: "none"}, wire.Request{Op: wire.Clear, Space: "nothing"})
}

// hold reserves and pins with all sessions until nothing is granted any more, and goes on asking.
func (a *attacker) hold(perLease int, size int64, leases int) {
	list := a.open(crowd250)
	for round := 0; ; round++ {
		for i, c := range list {
			for l := range leases {
				objects := make([]wire.Object, perLease)
				for k := range objects {
					objects[k] = wire.Object{Name: fmt.Sprintf("held-%d-%d-%d-%d", a.Number, i, l, k), Size: size}
				}
				var p wire.Reply
				err := c.call(&wire.Request{Op: wire.Reserve, Lease: fmt.Sprintf("%d", l), Space: attackSpace, Objects: objects, Seconds: 3600}, &p)
				a.attacks.Add(1)
				if err != nil || p.Items[len(p.Items)-1].Status != wire.StatusReserved {
					break
				}
			}
		}
		a.begin()
		time.Sleep(10 * time.Millisecond)
	}
}

func (a *attacker) records() { a.hold(1000, 1, 64) }
func (a *attacker) leases()  { a.hold(1, 1, 1100) }
func (a *attacker) bytes()   { a.hold(4, 1<<20, 64) }

// turnovers of the memory are what an attacker that stores is held to in a second. One that writes nothing
// could make eighty, and no policy keeps what is asked for twice a second then.
const turnovers = 4

// store stores objects without end. The attack has begun when there were twice as many as the memory holds.
func (a *attacker) store(perRequest int, object func(n, i int) wire.Object) {
	list := a.open(4)
	var wg sync.WaitGroup
	for at, c := range list {
		wg.Go(func() {
			stored := int64(0)
			for n := at; ; n += len(list) {
				objects, names := make([]wire.Object, perRequest), make([]string, perRequest)
				for i := range objects {
					objects[i] = object(n, i)
					names[i] = objects[i].Name
				}
				var p wire.Reply
				err := c.call(&wire.Request{Op: wire.Reserve, Lease: "store", Space: attackSpace, Objects: objects}, &p)
				if err == nil {
					err = c.call(&wire.Request{Op: wire.Commit, Lease: "store", Space: attackSpace, Names: names}, &p)
				}
				if err != nil {
					return
				}
				stored += objects[0].Size * int64(perRequest)
				a.attacks.Add(int64(perRequest))
				if stored > 2*attackedSize/int64(len(list)) {
					a.begin()
				}
				time.Sleep(time.Duration(objects[0].Size*int64(perRequest*len(list))) * time.Second / (turnovers * attackedSize))
			}
		})
	}
	wg.Wait()
}

func (a *attacker) costs() {
	a.store(1, func(n, _ int) wire.Object {
		return wire.Object{Name: fmt.Sprint("p", n), Size: 256 << 10, Cost: time.Duration(math.MaxInt64)}
	})
}

func (a *attacker) cycles() {
	a.store(2, func(n, i int) wire.Object {
		return wire.Object{Name: fmt.Sprint("c", n, "-", i), Size: 100 << 10, Parent: fmt.Sprint("c", n, "-", 1-i), Cost: time.Hour}
	})
}

// connections opens connections without end, and keeps them as long as they last.
func (a *attacker) connections() {
	var kept []net.Conn
	for n := 0; ; n++ {
		c, err := net.DialTimeout("unix", a.Socket, patience)
		if err == nil {
			kept = append(kept, c)
			a.attacks.Add(1)
		}
		if len(kept) > 600 {
			for _, c := range kept[:300] {
				_ = c.Close()
			}
			kept = kept[300:]
			a.begin()
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// halves announces large requests and sends all but the last byte.
func (a *attacker) halves() {
	for {
		list := a.open(crowd250)
		frame := []byte{0, 0, 0x10, 0} // a MiB
		frame = append(frame, bytes.Repeat([]byte{0xc1}, 1<<20-1)...)
		var wg sync.WaitGroup
		for _, c := range list {
			wg.Go(func() {
				_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
				_, _ = c.Write(frame)
				a.attacks.Add(1)
				a.begin()
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		for _, c := range list {
			_ = c.Close()
		}
	}
}

// slowProbes opens connections to the probes, and sends a byte of a header now and then.
func (a *attacker) slowProbes() {
	var kept []net.Conn
	for {
		for len(kept) < 200 {
			c, err := net.DialTimeout("tcp", a.HTTP, time.Second)
			if err != nil {
				break
			}
			_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")
			kept = append(kept, c)
			a.attacks.Add(1)
		}
		a.begin()
		open := kept[:0]
		for _, c := range kept {
			if _, err := c.Write([]byte("a")); err == nil {
				open = append(open, c)
			}
		}
		kept = open
		time.Sleep(200 * time.Millisecond)
	}
}
