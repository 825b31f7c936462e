//go:build linux

package daemontest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/lmcache/lm"
)

var (
	lmLieCount = flag.Int("lm.lies", 4000, "TestLMLies sends so many lying requests")
	lmLieSeed  = flag.Uint64("lm.lies.seed", 0, "seed of TestLMLies; 0 makes one up")
)

// lmLieMemory is what the daemon may take for itself.
const lmLieMemory = 128 << 20

// TestLMLies lets processes lie to a server of lm://. Clients beside them get right bytes; every request is answered, or its
// connection closed; what the server takes is bounded, and nothing is held when the liars have gone.
func TestLMLies(t *testing.T) {
	seed := seedOf(t, "lm.lies.seed", *lmLieSeed)
	d := daemonRole{LM: true, Dir: folder(t), Size: 64 << 20, Grace: patience}
	p := d.start(t, "")
	require.True(t, p.wait("ready"))
	honest := role{LMClient: &lmClientRole{Socket: d.socket(), Keys: 100, Clients: 4, Seed: seed % (1 << 20), MayMiss: true}}
	var liars []role
	for i := range uint64(liarProcesses) {
		liars = append(liars, role{LMLiar: &lmLiarRole{Socket: d.socket(), Requests: *lmLieCount / liarProcesses, Seed: seed + i}})
	}
	r := p.lieTo(honest, liars, func() {}, func(crowd *crowd) {
		for range 20 { // it is still served
			<-crowd.steps
		}
		p.rests(crowd)
	})
	require.GreaterOrEqual(t, r.lies, *lmLieCount/liarProcesses*liarProcesses)
	require.Less(t, r.after.Heap, r.before.Heap+16<<20)
	if !failpoint.Enabled { // the race detector takes more
		require.Less(t, r.most, int64(lmLieMemory))
	}
	p.end()
	require.Empty(t, p.bad)
}

// lmLiarRole is a process of clients that lie. It prints its counts.
type lmLiarRole struct {
	Socket   string
	Requests int
	Seed     uint64
}

func (r *lmLiarRole) run() {
	const clients = 4
	var wg sync.WaitGroup
	var mu sync.Mutex
	counts := map[string]int{}
	for i := range clients {
		wg.Go(func() {
			l := &lmLiar{socket: r.Socket, rng: rand.New(rand.NewPCG(r.Seed, uint64(i))), counts: map[string]int{}}
			for sent := 0; sent < r.Requests/clients+clients; {
				n, err := l.connection()
				if err != nil {
					say("! %v", err)
					os.Exit(1)
				}
				sent += n
			}
			for _, c := range l.deaf {
				_ = c.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			for what, n := range l.counts {
				counts[what] += n
			}
		})
	}
	wg.Wait()
	b, err := json.Marshal(counts)
	if err != nil {
		panic(err)
	}
	say("%s", b)
}

type lmLiar struct {
	socket string
	rng    *rand.Rand
	deaf   []net.Conn // connections that read nothing
	counts map[string]int
}

// connection sends some lies on one connection, and judges what comes back.
func (l *lmLiar) connection() (n int, err error) {
	form := []lm.Form{lm.Located, lm.Located, lm.Typed, lm.Untyped}[l.rng.IntN(4)]
	var sent []byte
	for n = 0; n < 1+l.rng.IntN(40); n++ {
		sent = append(sent, l.request(form)...)
	}
	if l.rng.IntN(3) == 0 {
		sent = sent[:l.rng.IntN(len(sent)+1)]
	}
	raw, err := net.Dial("unix", l.socket)
	if err != nil {
		return n, err
	}
	c := raw.(*net.UnixConn)
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return n, err
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		wrote <- errors.Join(err, c.CloseWrite())
	}()
	if l.rng.IntN(50) == 0 { // nobody reads
		l.deaf = append(l.deaf, c)
		if len(l.deaf) > 2 {
			_ = l.deaf[0].Close()
			l.deaf = l.deaf[1:]
		}
		_ = c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // the daemon may not read any more, either
		<-wrote
		l.counts["deaf"] += n
		return n, nil
	}
	defer c.Close()
	got, err := io.ReadAll(c)
	<-wrote // the daemon may have closed the connection
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		return n, fmt.Errorf("neither answered nor closed: %w", err)
	}
	l.counts["sent"] += n
	return n, l.judge(form, got, err != nil)
}

// judge looks whether answers are whole replies of one form: that of the first request, if it could be read.
func (l *lmLiar) judge(form lm.Form, got []byte, cut bool) error {
	for _, f := range []lm.Form{form, lm.Located, lm.Typed, lm.Untyped} {
		if whole(f, got, cut) {
			return nil
		}
	}
	return fmt.Errorf("%d bytes are no replies: %x", len(got), got[:min(len(got), 72)])
}

// whole reports whether bytes are replies, of which the last one may be cut off.
func whole(f lm.Form, b []byte, cut bool) bool {
	for len(b) > 0 {
		if len(b) < f.ReplySize() {
			return cut
		}
		p, err := f.DecodeReply(b[:f.ReplySize()])
		if err != nil {
			return false
		}
		b = b[f.ReplySize():]
		if len(b) < int(p.Length) {
			return cut
		}
		b = b[p.Length:]
	}
	return true
}

// request is one that is right as far as its form goes, or not even that.
func (l *lmLiar) request(form lm.Form) []byte {
	q := lm.Request{
		Command: lm.Command(1 + l.rng.IntN(5)), Key: fmt.Sprintf("lies%d@1@0@%x@half", l.rng.IntN(2), l.rng.IntN(20)),
		Meta: lm.Meta{Format: l.rng.Int32N(9), DType: l.rng.Int32N(9), Shape: [4]int32{l.rng.Int32(), -1, 0, l.rng.Int32N(100)}},
	}
	var value []byte
	if q.Command == lm.Put {
		value = bytes.Repeat([]byte{byte(l.rng.Uint32())}, l.rng.IntN(1<<l.rng.IntN(17)))
		q.Length = int32(len(value))
	}
	b, err := form.AppendRequest(nil, &q)
	if err != nil {
		panic(err)
	}
	switch l.rng.IntN(8) {
	case 0: // a number that is none, or one at which something begins or ends
		list := []int32{0, -1, 1, 6, 9, 1 << 20, 1<<31 - 1, -1 << 31, l.rng.Int32()}
		binary.LittleEndian.PutUint32(b[4*l.rng.IntN(form.ReplySize()/4):], uint32(list[l.rng.IntN(len(list))]))
	case 1:
		for range 1 + l.rng.IntN(4) {
			b[l.rng.IntN(len(b))] ^= 1 << l.rng.IntN(8)
		}
	case 2: // another length than the value's
		binary.LittleEndian.PutUint32(b[4:], uint32(l.rng.IntN(1<<l.rng.IntN(31))))
	}
	return append(b, value...)
}
