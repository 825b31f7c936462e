package wire

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/encoder"
)

// memory returns about how many bytes a message takes, with what it points to.
func memory(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			n = int(v.Type().Elem().Size()) + memory(v.Elem())
		}
	case reflect.String:
		n = v.Len()
	case reflect.Slice:
		n = v.Cap() * int(v.Type().Elem().Size())
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				n += memory(v.Index(i))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += memory(v.Field(i))
		}
	}
	return n
}

// checkRequest holds for any body: it is read, or refused by an error with a text.
func checkRequest(t require.TestingT, body []byte) (accepted bool) {
	before := bytes.Clone(body)
	var q Request
	err := DecodeRequest(body, &q)
	require.Equal(t, before, body)
	if err != nil {
		checkError(t, err)
		require.Equal(t, Request{ID: q.ID}, q)
		return false
	}
	require.NotZero(t, q.ID)
	require.NoError(t, q.Validate())
	require.LessOrEqual(t, memory(reflect.ValueOf(q)), 64*len(body)+1024)
	want := general(t, body, reflect.TypeFor[Request]()).(map[string]any)
	for n, key := range requestKeys {
		if form := forms[q.Op]; !(always | form.needs | form.may).has(n) {
			delete(want, key)
		}
	}
	require.Equal(t, withoutZeros(tree(reflect.ValueOf(q))), withoutZeros(want))
	frame, err := AppendRequest(nil, &q)
	require.NoError(t, err)
	require.LessOrEqual(t, len(frame), len(body)+header+64, "no longer form was chosen")
	var again Request
	require.NoError(t, DecodeRequest(frame[header:], &again))
	second, err := AppendRequest(nil, &again)
	require.NoError(t, err)
	require.Equal(t, frame, second)
	return true
}

func checkReply(t require.TestingT, body []byte) (accepted bool) {
	before := bytes.Clone(body)
	var p Reply
	err := DecodeReply(body, &p)
	require.Equal(t, before, body)
	if err != nil {
		checkError(t, err)
		require.Equal(t, Reply{}, p)
		return false
	}
	require.LessOrEqual(t, memory(reflect.ValueOf(p)), 64*len(body)+1024)
	require.Equal(t, withoutZeros(tree(reflect.ValueOf(p))), withoutZeros(general(t, body, reflect.TypeFor[Reply]())))
	frame, err := AppendReply(nil, &p)
	require.NoError(t, err)
	var again Reply
	require.NoError(t, DecodeReply(frame[header:], &again))
	second, err := AppendReply(nil, &again)
	require.NoError(t, err)
	require.Equal(t, frame, second)
	return true
}

func checkError(t require.TestingT, err error) {
	var bad *Error
	require.ErrorAs(t, err, &bad)
	require.Contains(t, []Kind{KindInvalid, KindUnsupported, KindVersion}, bad.Kind)
	require.NotEmpty(t, bad.Text)
	require.Less(t, len(bad.Text), 1000, "an error does not cite much")
}

// withoutZeros takes out of a tree the values that are zero, which a codec may leave out.
func withoutZeros(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if v[k] = withoutZeros(e); isZero(e) {
				delete(v, k)
			}
		}
	case []any:
		for i, e := range v {
			v[i] = withoutZeros(e)
		}
	}
	return v
}

func isZero(v any) bool {
	switch v := v.(type) {
	case string:
		return v == ""
	case []byte:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case bool:
		return !v
	case int64:
		return v == 0
	}
	return false
}

// requestExamples are requests of every kind.
func requestExamples() []*Request {
	return []*Request{
		{ID: 1, Op: Hello, Version: Version, Session: "12345678", Client: "c", Fingerprint: &encoder.Fingerprint{Model: "m", Revision: "r", DType: "bfloat16", Layout: "l", Engine: "e", Ranks: 2, Rank: 1}, Features: []string{"a", ""}},
		{ID: 300, Op: Pin, Lease: "l", Space: "s", Names: []string{"a", ""}, Seconds: 70000, Prefix: true, Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		{ID: 3, Op: Get, Lease: "l", Space: "s"},
		{ID: 1 << 63, Op: Reserve, Lease: "l", Space: "s", Objects: []Object{{Name: "a", Size: 1 << 40, Note: []byte{1}, Parent: "p", Tenant: "t", Cost: 1}, {}}},
		{ID: 5, Op: Commit, Lease: "l", Space: "s", Names: []string{"a"}, Keep: true, Seconds: 1},
		{ID: 6, Op: Abort, Lease: "l", Space: "s", Names: []string{"a"}},
		{ID: 7, Op: Release, Leases: []string{"l", "m"}},
		{ID: 8, Op: Stat, Space: "s", Names: []string{"a"}, List: true},
		{ID: 9, Op: Clear},
	}
}

func replyExamples() []*Reply {
	return []*Reply{
		{ID: 1, Version: 1, Server: "ringcache 1", Segment: &Segment{Name: "ringcache", Size: 1 << 32, Generation: 1 << 63, Inode: 3}, Space: "s", Features: []string{"a"}, Limits: &Limits{Names: 1024, Seconds: 3600, Held: 1 << 40, Leases: 5}},
		{ID: 2, Items: []Item{{Status: StatusHit, Name: "n", Offset: 64, Size: 1 << 20, Note: []byte("bfloat16 1")}, {Status: StatusMiss, Levels: []string{"memory", ""}}}},
		{ID: 3, Error: &Error{Kind: KindBusy, Text: "no"}},
		{Error: &Error{Kind: KindInvalid}},
		{ID: 4, State: &State{Levels: []Level{{Name: "memory", Away: true, Objects: -1, Bytes: 3, Capacity: 4, Held: 5, Backlog: 6}}, Sessions: 1, Leases: 2, Fetches: 3, Backlog: 4, Clearing: true, Seconds: 7, Hits: 8, Misses: 9, Stored: 10, Recent: &Use{Seconds: 11, Hits: 12, Misses: 13, Stored: 14}}},
		{ID: 5, Leases: []Lease{{Name: "l", Client: "c", PID: 7, Seconds: -1, Pinned: 1, Reserved: 2, Bytes: 3, Waiting: true, Names: 4}}, Layouts: []string{"{}"}, Clients: []ClientState{{Session: "s", Client: "c", PID: 7, Space: "p", Seconds: 1, Idle: 2, Hits: 3, Misses: 4, Stored: 5}}},
	}
}

// FuzzRequest: any body is read or refused. What is read is what another library reads, takes memory in
// proportion, and is written in a form that is read as the same.
func FuzzRequest(f *testing.F) {
	for _, q := range requestExamples() {
		frame, err := AppendRequest(nil, q)
		require.NoError(f, err)
		f.Add(frame[header:])
	}
	f.Add(pack(f, pin.with(pair{"later", list{m{{"id", nil}, {1, notUTF8}}}}, pair{"keep", true}))) // of a later version
	f.Add(pack(f, objects(m{{"later", m{{"name", 1}}}, {"name", "a"}})))
	f.Fuzz(func(t *testing.T, body []byte) { checkRequest(t, body) })
}

// FuzzReply is FuzzRequest for replies.
func FuzzReply(f *testing.F) {
	for _, p := range replyExamples() {
		frame, err := AppendReply(nil, p)
		require.NoError(f, err)
		f.Add(frame[header:])
	}
	f.Add(pack(f, m{{"later", list{m{{1, nil}}}}, {"id", 7}, {"items", list{m{{"later", 1.5}, {"status", "hit"}}}}})) // of a later version
	f.Add(pack(f, m{{"id", 7}, {"error", m{{"kind", "later"}, {"op", "pin"}}}}))
	f.Fuzz(func(t *testing.T, body []byte) { checkReply(t, body) })
}
