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

// TestCallsAllocateLittle: a server that is asked the same again allocates nothing, and one that is asked for other names a text
// for each.
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

func BenchmarkDecodeRequest(b *testing.B) {
	frame, err := AppendRequest(nil, pinRequest(64))
	require.NoError(b, err)
	var q Request
	b.ReportAllocs()
	for b.Loop() {
		if err := DecodeRequest(frame[header:], &q); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendReply(b *testing.B) {
	p := pinReply(64)
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if out, err = AppendReply(out[:0], p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeReply(b *testing.B) {
	out, err := AppendReply(nil, pinReply(64))
	require.NoError(b, err)
	var p Reply
	b.ReportAllocs()
	for b.Loop() {
		if err := DecodeReply(out[header:], &p); err != nil {
			b.Fatal(err)
		}
	}
}
