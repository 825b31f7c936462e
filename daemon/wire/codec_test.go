package wire

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/encoder"
)

// text draws any UTF-8 text, often short, and sometimes with a length that needs another header.
func text(most int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		if rapid.IntRange(0, 20).Draw(t, "long") == 0 {
			return strings.Repeat("x", rapid.IntRange(0, most).Draw(t, "length"))
		}
		return rapid.StringN(0, min(8, most), most).Draw(t, "text")
	})
}

// printed draws texts that people can read in a line.
func printed(most int) *rapid.Generator[string] {
	return text(most).Filter(func(s string) bool { return s != "" && printable(s) })
}

func bytesOrNil(t *rapid.T) []byte {
	b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes")
	if len(b) == 0 {
		return nil
	}
	return b
}

var (
	counts = rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 200), rapid.IntRange(0, math.MaxInt32))
	sizes  = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 200), rapid.Int64Range(0, math.MaxInt64))
	wide   = rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, 300), rapid.Uint64())
	either = rapid.Bool()
)

// drawRequest draws a request that is valid.
func drawRequest(t *rapid.T) *Request {
	q := &Request{ID: rapid.Uint64Min(1).Draw(t, "id"), Op: rapid.SampledFrom(allOp).Draw(t, "op")}
	names := func(least int) []string { return rapid.SliceOfN(text(300), least, 5).Draw(t, "names") }
	where := func() {
		q.Lease = printed(maxLease).Draw(t, "lease")
		q.Space = text(255).Filter(func(s string) bool { return s != "" }).Draw(t, "space")
	}
	trace := func() { q.Trace = text(60).Draw(t, "trace") }
	seconds := func() { q.Seconds = rapid.Uint32().Draw(t, "seconds") }
	switch q.Op {
	case Hello:
		q.Version = Version
		q.Session = rapid.StringMatching(`[A-Za-z0-9_-]{8,64}`).Draw(t, "session")
		q.Client = printed(MaxClient).Draw(t, "client")
		q.Features = rapid.SliceOfN(text(20), 0, 3).Draw(t, "features")
		if either.Draw(t, "print") {
			q.Fingerprint = &encoder.Fingerprint{Model: "m", Revision: text(10).Draw(t, "revision"), DType: "bfloat16", Layout: text(10).Draw(t, "layout"), Engine: text(10).Draw(t, "engine"), Ranks: 4, Rank: 3}
		}
	case Pin:
		where()
		seconds()
		trace()
		q.Names = names(1)
		q.Prefix = either.Draw(t, "prefix")
	case Get:
		where()
		trace()
		q.Names = names(0)
	case Reserve:
		where()
		seconds()
		trace()
		for range rapid.IntRange(1, 5).Draw(t, "objects") {
			q.Objects = append(q.Objects, Object{
				Name: text(300).Draw(t, "name"), Size: sizes.Draw(t, "size"), Note: bytesOrNil(t), Parent: text(20).Draw(t, "parent"),
				Tenant: text(20).Draw(t, "tenant"), Cost: time.Duration(sizes.Draw(t, "cost")),
			})
		}
	case Commit:
		where()
		trace()
		q.Names = names(1)
		if q.Keep = either.Draw(t, "keep"); q.Keep {
			seconds()
		}
	case Abort:
		where()
		q.Names = names(1)
	case Release:
		if either.Draw(t, "leases") {
			q.Leases = rapid.SliceOfN(printed(maxLease), 1, 5).Draw(t, "leases")
		} else {
			where()
			q.Names = names(1)
		}
	case Stat:
		q.List = either.Draw(t, "list")
		if q.Names = names(0); len(q.Names) > 0 {
			q.Space = "space"
		}
	case Clear:
		q.Space = text(255).Draw(t, "space")
		q.Prefix = either.Draw(t, "prefix")
	}
	return withoutRoom(q)
}

func unknown(t *rapid.T) int64 {
	if rapid.IntRange(0, 3).Draw(t, "unknown") == 0 {
		return -1
	}
	return sizes.Draw(t, "known")
}

func drawReply(t *rapid.T) *Reply {
	p := &Reply{ID: rapid.Uint64Min(1).Draw(t, "id")}
	if rapid.IntRange(0, 5).Draw(t, "error") == 0 {
		p.Error = &Error{Kind: rapid.SampledFrom(allKind).Draw(t, "kind"), Text: text(300).Draw(t, "text")}
		return p
	}
	if either.Draw(t, "hello") {
		p.Version = counts.Draw(t, "version")
		p.Server = text(20).Draw(t, "server")
		p.Space = text(20).Draw(t, "space")
		p.Features = rapid.SliceOfN(text(20), 0, 3).Draw(t, "features")
		p.Segment = &Segment{Name: text(20).Draw(t, "name"), Size: sizes.Draw(t, "size"), Generation: wide.Draw(t, "generation"), Inode: wide.Draw(t, "inode")}
		p.Limits = &Limits{Names: counts.Draw(t, "names"), Seconds: rapid.Uint32().Draw(t, "seconds"), Held: sizes.Draw(t, "held"), Leases: counts.Draw(t, "leases")}
	}
	for range rapid.IntRange(0, 5).Draw(t, "items") {
		v := Item{Status: rapid.SampledFrom(allStatus).Draw(t, "status"), Name: text(20).Draw(t, "name"), Offset: wide.Draw(t, "offset"), Size: sizes.Draw(t, "size"), Note: bytesOrNil(t)}
		for range rapid.IntRange(0, 2).Draw(t, "levels") {
			v.Levels = append(v.Levels, text(10).Draw(t, "level"))
		}
		p.Items = append(p.Items, v)
	}
	if either.Draw(t, "state") {
		p.State = &State{
			Sessions: counts.Draw(t, "sessions"), Leases: counts.Draw(t, "leases"), Fetches: counts.Draw(t, "fetches"), Backlog: counts.Draw(t, "backlog"),
			Clearing: either.Draw(t, "clearing"), Seconds: sizes.Draw(t, "seconds"),
			Hits: sizes.Draw(t, "hits"), Misses: sizes.Draw(t, "misses"), Stored: sizes.Draw(t, "stored"),
		}
		if either.Draw(t, "recent") {
			p.State.Recent = &Use{Seconds: sizes.Draw(t, "seconds"), Hits: sizes.Draw(t, "hits"), Misses: sizes.Draw(t, "misses"), Stored: sizes.Draw(t, "stored")}
		}
		for range rapid.IntRange(0, 3).Draw(t, "levels") {
			p.State.Levels = append(p.State.Levels, Level{
				Name: text(20).Draw(t, "name"), Away: either.Draw(t, "away"), Objects: unknown(t), Bytes: unknown(t), Capacity: unknown(t),
				Held: unknown(t), Backlog: counts.Draw(t, "backlog"),
			})
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "leases") {
		p.Leases = append(p.Leases, Lease{
			Name: text(20).Draw(t, "name"), Client: text(20).Draw(t, "client"), PID: counts.Draw(t, "pid"), Seconds: unknown(t),
			Pinned: counts.Draw(t, "pinned"), Reserved: counts.Draw(t, "reserved"), Bytes: sizes.Draw(t, "bytes"), Waiting: either.Draw(t, "waiting"),
			Names: counts.Draw(t, "names"),
		})
	}
	for range rapid.IntRange(0, 3).Draw(t, "clients") {
		p.Clients = append(p.Clients, ClientState{
			Session: text(20).Draw(t, "session"), Client: text(20).Draw(t, "client"), PID: counts.Draw(t, "pid"), Space: text(20).Draw(t, "space"), Seconds: sizes.Draw(t, "seconds"),
			Idle: sizes.Draw(t, "idle"), Hits: sizes.Draw(t, "hits"), Misses: sizes.Draw(t, "misses"), Stored: sizes.Draw(t, "stored"),
		})
	}
	p.Layouts = rapid.SliceOfN(text(20), 0, 3).Draw(t, "layouts")
	return withoutRoom(p)
}

// body returns the body of the one frame that b is.
func body(t require.TestingT, b []byte) []byte {
	r := NewReader(bytes.NewReader(b), MaxReply)
	got, err := r.Next()
	require.NoError(t, err)
	got = bytes.Clone(got)
	_, err = r.Next()
	require.ErrorIs(t, err, io.EOF)
	return got
}

// withoutRoom returns a copy of a message whose empty lists are nil.
func withoutRoom[T any](p *T) *T {
	same := *p
	v := reflect.ValueOf(&same).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Slice && f.Len() == 0 {
			f.SetZero()
		}
	}
	return &same
}

// TestRequestsRoundTrip uses one Request for everything, as a server does: nothing of one may be left in the next.
func TestRequestsRoundTrip(t *testing.T) {
	var used Request
	rapid.Check(t, func(t *rapid.T) {
		want := drawRequest(t)
		frame, err := AppendRequest([]byte("before"), want)
		require.NoError(t, err)
		require.Equal(t, "before", string(frame[:6]))
		for _, got := range []*Request{{}, &used} {
			require.NoError(t, DecodeRequest(body(t, frame[6:]), got))
			again, err := AppendRequest([]byte("before"), got)
			require.NoError(t, err)
			require.Equal(t, frame, again)
			require.Equal(t, want, withoutRoom(got))
		}
	})
}

func TestRepliesRoundTrip(t *testing.T) {
	var used Reply
	rapid.Check(t, func(t *rapid.T) {
		want := drawReply(t)
		frame, err := AppendReply(nil, want)
		require.NoError(t, err)
		require.LessOrEqual(t, len(frame), ReplySize(want))
		for _, got := range []*Reply{{}, &used} {
			require.NoError(t, DecodeReply(body(t, frame), got))
			again, err := AppendReply(nil, got)
			require.NoError(t, err)
			require.Equal(t, frame, again)
			require.Equal(t, want, withoutRoom(got))
		}
	})
}

// TestReplySizeIsEnough: for the largest values of all fields, of which none has room to spare for another,
// and not much too large.
func TestReplySizeIsEnough(t *testing.T) {
	const most = 1<<63 - 1
	long := strings.Repeat("x", 1<<16)
	item := Item{Status: StatusUnavailable, Name: long, Offset: 1<<64 - 1, Size: most, Note: []byte(long), Levels: []string{long, long}}
	level := Level{Name: long, Away: true, Objects: most, Bytes: most, Capacity: most, Held: most, Backlog: 1<<31 - 1}
	lease := Lease{Name: long, Client: long, PID: 1<<31 - 1, Seconds: most, Pinned: 1<<31 - 1, Reserved: 1<<31 - 1, Bytes: most, Waiting: true, Names: 1<<31 - 1}
	for name, p := range map[string]*Reply{
		"hello": {
			ID: 1<<64 - 1, Version: 1<<31 - 1, Server: long, Space: long, Features: []string{long, "a"}, Segment: &Segment{long, most, 1<<64 - 1, 1<<64 - 1},
			Limits: &Limits{1<<31 - 1, 1<<32 - 1, most, 1<<31 - 1},
		},
		"stat": {
			ID: 1<<64 - 1, Items: slices.Repeat([]Item{item}, 20), Leases: slices.Repeat([]Lease{lease}, 10), Layouts: []string{long, "a"},
			State: &State{
				Levels: slices.Repeat([]Level{level}, 5), Sessions: 1<<31 - 1, Leases: 1<<31 - 1, Fetches: 1<<31 - 1, Backlog: 1<<31 - 1, Clearing: true, Seconds: most,
				Hits: most, Misses: most, Stored: most, Recent: &Use{most, most, most, most},
			},
			Clients: slices.Repeat([]ClientState{{Session: long, Client: long, PID: 1<<31 - 1, Space: long, Seconds: most, Idle: most, Hits: most, Misses: most, Stored: most}}, 2),
		},
		"error": {ID: 1<<64 - 1, Error: &Error{KindPermission, strings.Repeat("\xff ", 1000)}},
	} {
		frame, err := AppendReply(nil, p)
		require.NoError(t, err, name)
		require.LessOrEqual(t, len(frame), ReplySize(p), name)
		require.Less(t, ReplySize(p), 2*len(frame)+512, name)
	}
	short := &Reply{ID: 1, Items: slices.Repeat([]Item{{Status: StatusHit, Offset: 1 << 30, Size: 1 << 20, Note: []byte("bfloat16 256 5376")}}, 160)}
	require.Less(t, ReplySize(short), 16<<10)
}

// TestWhatIsReadIsOwn: the buffer of a frame is used for the next one, and what was read must not change with it.
func TestWhatIsReadIsOwn(t *testing.T) {
	for _, q := range requestExamples() {
		frame, err := AppendRequest(nil, q)
		require.NoError(t, err)
		var got Request
		require.NoError(t, DecodeRequest(frame[header:], &got))
		before := fmt.Sprintf("%+v %+v", got, got.Fingerprint)
		for i := range frame {
			frame[i] = 'x'
		}
		require.Equal(t, before, fmt.Sprintf("%+v %+v", got, got.Fingerprint))
	}
	for _, p := range replyExamples() {
		frame, err := AppendReply(nil, p)
		require.NoError(t, err)
		var got, again Reply
		require.NoError(t, DecodeReply(frame[header:], &got))
		require.NoError(t, DecodeReply(bytes.Clone(frame[header:]), &again))
		for i := range frame {
			frame[i] = 'x'
		}
		require.Equal(t, again, got)
	}
}

// TestNotesStay: a note belongs to an object that somebody keeps, while the request is read anew.
func TestNotesStay(t *testing.T) {
	reserve := func(note string) []byte {
		frame, err := AppendRequest(nil, &Request{ID: 1, Op: Reserve, Lease: "l", Space: "s", Objects: []Object{{Name: "a", Note: []byte(note)}}})
		require.NoError(t, err)
		return frame[header:]
	}
	var q Request
	require.NoError(t, DecodeRequest(reserve("first"), &q))
	kept := q.Objects[0].Note
	require.NoError(t, DecodeRequest(reserve("other"), &q))
	require.Equal(t, "first", string(kept))
}
