package wire

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func pinRequest(n int) *Request {
	q := &Request{ID: 7, Op: Pin, Lease: "request-1", Space: "model.bfloat16.0123456789abcdef", Seconds: 300}
	for i := range n {
		q.Names = append(q.Names, fmt.Sprintf("%064x", i))
	}
	return q
}

func pinReply(n int) *Reply {
	p := &Reply{ID: 7}
	for i := range n {
		p.Items = append(p.Items, Item{Status: StatusHit, Offset: uint64(i) << 20, Size: 1 << 20})
	}
	return p
}

// TestCallsAllocateLittle: a server that is asked the same again allocates nothing, and one that is asked for
// other names a text for each.
func TestCallsAllocateLittle(t *testing.T) {
	frame, err := AppendRequest(nil, pinRequest(64))
	require.NoError(t, err)
	var q Request
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := DecodeRequest(frame[header:], &q); err != nil {
			panic(err)
		}
	}))
	other := pinRequest(64)
	for i, n := range other.Names {
		other.Names[i] = "x" + n[1:]
	}
	second, err := AppendRequest(nil, other)
	require.NoError(t, err)
	turn := [][]byte{frame, second}
	i := 0
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		i++
		if err := DecodeRequest(turn[i%2][header:], &q); err != nil {
			panic(err)
		}
	}), 64.0)

	reply := pinReply(64)
	out, err := AppendReply(nil, reply)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if out, err = AppendReply(out[:0], reply); err != nil {
			panic(err)
		}
	}))
	var p Reply
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := DecodeReply(out[header:], &p); err != nil {
			panic(err)
		}
	}))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if frame, err = AppendRequest(frame[:0], &q); err != nil {
			panic(err)
		}
	}))
	from := bytes.NewReader(nil)
	r := NewReader(from, MaxReply)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		from.Reset(out)
		if _, err := r.Next(); err != nil {
			panic(err)
		}
	}))
}

// hot are the messages of an engine's step: 64 names, and what is answered.
func hot() map[string]struct {
	q *Request
	p *Reply
} {
	pin := pinRequest(64)
	commit := &Request{ID: 8, Op: Commit, Lease: pin.Lease, Space: pin.Space, Names: pin.Names, Keep: true}
	reserve := &Request{ID: 9, Op: Reserve, Lease: pin.Lease, Space: pin.Space, Seconds: 300}
	done, room := &Reply{ID: 8}, &Reply{ID: 9}
	for i, name := range pin.Names {
		note := []byte("bfloat16 256 1536")
		reserve.Objects = append(reserve.Objects, Object{Name: name, Size: 1 << 20, Note: note, Cost: 85e6})
		done.Items = append(done.Items, Item{Status: StatusOK})
		room.Items = append(room.Items, Item{Status: StatusReserved, Offset: uint64(i) << 20, Size: 1 << 20, Note: note})
	}
	return map[string]struct {
		q *Request
		p *Reply
	}{"pin": {pin, pinReply(64)}, "reserve": {reserve, room}, "commit": {commit, done}}
}

func BenchmarkCodec(b *testing.B) {
	for name, x := range hot() {
		request, err := AppendRequest(nil, x.q)
		require.NoError(b, err)
		reply, err := AppendReply(nil, x.p)
		require.NoError(b, err)
		var q Request
		var p Reply
		var out []byte
		for step, do := range map[string]func() error{
			"AppendRequest": func() error { out, err = AppendRequest(out[:0], x.q); return err },
			"DecodeRequest": func() error { return DecodeRequest(request[header:], &q) },
			"AppendReply":   func() error { out, err = AppendReply(out[:0], x.p); return err },
			"DecodeReply":   func() error { return DecodeReply(reply[header:], &p) },
			"ReplySize":     func() error { _ = ReplySize(x.p); return nil },
		} {
			b.Run(name+"/"+step, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := do(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
