package lrusync_test

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/lrusync"
)

// receiverAt names the socket of a test process that is the engine.
const receiverAt = "RINGCACHE_TEST_RECEIVER_AT"

var twoProcesses = lrusync.Options{Capacity: 300}

func TestMain(m *testing.M) {
	if path := os.Getenv(receiverAt); path != "" {
		if err := receive(path); err != nil {
			fmt.Fprintln(os.Stderr, "receiver:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(goldentest.ReadOnlyTable(m).Run())
}

type wireRequest struct {
	ID       uint64
	Envelope lrusync.Envelope
	Features []lrusync.Feature[[]byte]
	List     bool // asks for the contents, nothing else
}

type wireReply struct {
	ID       uint64
	Result   lrusync.Result[[]byte]
	Contents []lrusync.KeySize
	Error    string
}

// receive is the engine's process. It ends with its socket.
func receive(path string) error {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := lrusync.NewReceiver[[]byte](twoProcesses)
	if err != nil {
		return err
	}
	in, out := gob.NewDecoder(conn), gob.NewEncoder(conn)
	for {
		var q wireRequest
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return r.CheckStructure()
		} else if err != nil {
			return err
		}
		a := wireReply{ID: q.ID}
		if q.List {
			a.Contents, _ = r.Contents()
		} else if a.Result, err = r.Receive(q.Envelope, q.Features); err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// frontend counts what happens to its requests.
type frontend struct {
	s *lrusync.Sender
	l *link

	drifts, repairs, resent, omitted atomic.Int64
}

func payload(key string, size int64) []byte { return bytes.Repeat([]byte(key), int(size))[:size] }

// do completes one request, however often it takes.
func (f *frontend) do(items []lrusync.Item) error {
	for range 100 {
		var answer <-chan wireReply
		tk, err := f.s.Send(ctx, items, func(tk lrusync.Ticket) (err error) {
			q := wireRequest{Envelope: tk.Envelope, Features: make([]lrusync.Feature[[]byte], len(items))}
			for i, it := range items {
				q.Features[i].Key = it.Key
				if !tk.Omit[i] {
					q.Features[i] = lrusync.Feature[[]byte]{Key: it.Key, HasData: true, Value: payload(it.Key, it.Size), Size: it.Size}
				}
			}
			answer, err = f.l.send(q)
			return err
		})
		var need *lrusync.NeedDataError
		if errors.As(err, &need) {
			for i := range items {
				items[i].HasData = items[i].HasData || slices.Contains(need.Keys, items[i].Key)
			}
			continue
		}
		if err != nil {
			return err
		}
		a, ok := <-answer
		switch {
		case !ok: // lost
			f.resent.Add(1)
			continue
		case a.Error != "":
			return errors.New(a.Error)
		case a.Result.Drift != nil:
			f.drifts.Add(1)
			if f.s.Repair(*a.Result.Drift) {
				f.repairs.Add(1)
			}
		}
		if a.Result.Missing != nil {
			f.s.Missed(tk.Envelope, a.Result.Missing)
			f.resent.Add(1)
			continue
		}
		for i, it := range items {
			if !bytes.Equal(a.Result.Values[i], payload(it.Key, it.Size)) {
				return fmt.Errorf("%s arrived as %q", it.Key, a.Result.Values[i])
			}
			if tk.Omit[i] {
				f.omitted.Add(1)
			}
		}
		return nil
	}
	return errors.New("sent 100 times and still not served")
}

func (f *frontend) requireEqual(t *testing.T) {
	t.Helper()
	answer, err := f.l.send(wireRequest{List: true})
	require.NoError(t, err)
	there := <-answer
	here, _ := f.s.Contents()
	require.Equal(t, there.Contents, here)
	require.NotEmpty(t, here)
	require.NoError(t, f.s.CheckStructure())
}

// run has 8 clients make requests at the same time.
func (f *frontend) run(t *testing.T, requests int) {
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 7))
			for i := range requests {
				items := make([]lrusync.Item, 1+rnd.IntN(4))
				for i := range items {
					k := rnd.IntN(40)
					items[i] = lrusync.Item{Key: fmt.Sprint("k", k), Size: int64(1 + k), HasData: rnd.IntN(2) == 0}
				}
				if err := f.do(items); err != nil {
					t.Errorf("client %d, request %d: %v", c, i, err)
					return
				}
			}
		})
	}
	clients.Wait()
}

// A frontend with many goroutines and an engine in another process stay equal,
// and nothing is ever missing.
func TestTwoProcesses(t *testing.T) {
	s, err := lrusync.NewSender(twoProcesses)
	require.NoError(t, err)
	f := &frontend{s: s, l: startReceiver(t)}
	const requests = 500
	f.run(t, requests)
	f.requireEqual(t)
	require.Zero(t, f.drifts.Load())
	require.Zero(t, f.resent.Load(), "missing, though nothing was lost")
	require.Positive(t, f.omitted.Load())
	t.Logf("%d requests, %d items named only", 8*requests, f.omitted.Load())
}

// The same over a link that loses requests and lets them overtake each other:
// every drift is found and repaired, and every request served.
func TestTwoProcessesWithALossyLink(t *testing.T) {
	s, err := lrusync.NewSender(twoProcesses)
	require.NoError(t, err)
	f := &frontend{s: s, l: startReceiver(t)}
	f.l.rnd = rand.New(rand.NewPCG(1, 2))
	const requests = 500
	f.run(t, requests)
	f.l.rnd = nil
	for range 2 { // the first shows what the last loss has left
		require.NoError(t, f.do([]lrusync.Item{{Key: "k1", Size: 2, HasData: true}}))
	}
	f.requireEqual(t)
	for what, n := range map[string]int64{
		"dropped": int64(f.l.dropped), "swapped": int64(f.l.swapped),
		"drifts": f.drifts.Load(), "repairs": f.repairs.Load(), "omitted": f.omitted.Load(),
	} {
		require.Positive(t, n, what)
	}
	t.Logf("%d requests: %d dropped, %d overtaken, %d reports of drift, %d repairs, %d sent again, %d items named only",
		8*requests, f.l.dropped, f.l.swapped, f.drifts.Load(), f.repairs.Load(), f.resent.Load(), f.omitted.Load())
}
