package wire

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/encoder"
)

// later are values that another version may have under a key of its own.
var later = list{
	nil, true, -1, 1.5, "a", notUTF8, []byte{1}, list{}, list{1, list{m{{1, nil}}}}, m{}, m{{"id", 1}, {"op", "clear"}}, m{{nil, m{{"x", list{}}}}},
	msgpack.RawMessage("\xd4\x01a"), msgpack.RawMessage("\xd6\xffabcd"),
}

// withLater returns a tree with keys in each of its maps that this version does not know.
func withLater(t *rapid.T, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := m{}
		for k, e := range v {
			out = append(out, pair{k, withLater(t, e)})
		}
		for _, key := range []string{"later", "later", notUTF8, "", "ID", strings.Repeat("x", 300)} { // also twice
			at := rapid.IntRange(0, len(out)).Draw(t, "at")
			out = append(out[:at:at], append(m{{key, rapid.SampledFrom(later).Draw(t, "value")}}, out[at:]...)...)
		}
		return out
	case []any:
		out := list{}
		for _, e := range v {
			out = append(out, withLater(t, e))
		}
		return out
	}
	return v
}

// TestUnknownKeysAreSkipped: a message of a later version is read as if it had no more than this one knows.
func TestUnknownKeysAreSkipped(t *testing.T) {
	var usedRequest Request
	var usedReply Reply
	rapid.Check(t, func(t *rapid.T) {
		want := tree(reflect.ValueOf(*drawRequest(t)))
		require.NoError(t, DecodeRequest(pack(t, withLater(t, want)), &usedRequest))
		require.Equal(t, want, tree(reflect.ValueOf(usedRequest)))
		want = tree(reflect.ValueOf(*drawReply(t)))
		require.NoError(t, DecodeReply(pack(t, withLater(t, want)), &usedReply))
		require.Equal(t, want, tree(reflect.ValueOf(usedReply)))
	})
}

// TestFieldsOfOtherOpsAreDropped: a later client may give a field that we know to an operation that does
// not have it here. It can't mean anything that we would have to know, so we go by the rest; but our own
// programs are told.
func TestFieldsOfOtherOpsAreDropped(t *testing.T) {
	for name, c := range map[string]struct {
		body  m
		field string
	}{
		"hello with a lease":  {hello.with(pair{"lease", "a\x00"}), "lease"},
		"pin with keep":       {pin.with(pair{"keep", true}), "keep"},
		"pin with objects":    {pin.with(pair{"objects", list{m{{"name", "a"}}}}), "objects"},
		"pin with a session":  {pin.with(pair{"session", "s"}), "session"},
		"get with seconds":    {pin.with(pair{"op", "get"}, pair{"seconds", 1}), "seconds"},
		"reserve with names":  {objects(m{{"name", "a"}}).with(pair{"names", list{"a"}}), "names"},
		"abort with keep":     {pin.with(pair{"op", "abort"}, pair{"keep", true}), "keep"},
		"stat with a lease":   {m{{"id", 7}, {"op", "stat"}, {"lease", "l"}}, "lease"},
		"clear with names":    {m{{"id", 7}, {"op", "clear"}, {"names", list{"a"}}}, "names"},
		"stat with a version": {m{{"id", 7}, {"op", "stat"}, {"version", 3}}, "version"},
	} {
		t.Run(name, func(t *testing.T) {
			var q, want Request
			require.NoError(t, DecodeRequest(pack(t, c.body), &q))
			require.NoError(t, DecodeRequest(pack(t, c.body.without(c.field)), &want))
			require.Equal(t, tree(reflect.ValueOf(want)), tree(reflect.ValueOf(q)))

			var d decoder
			d.begin("request", pack(t, c.body))
			d.request(&q)
			require.NoError(t, d.end())
			require.ErrorContains(t, q.Validate(), "request: "+c.field+": "+string(q.Op)+" has no such field")
		})
	}
}

// TestUnknownOpIsUnsupported: the refusal names the operation, whatever else the request has, and can be
// answered.
func TestUnknownOpIsUnsupported(t *testing.T) {
	for name, v := range map[string]m{
		"alone":           {{"id", 7}, {"op", "Pin"}},
		"with our keys":   pin.with(pair{"op", "Pin"}),
		"with its own":    pin.with(pair{"op", "Pin"}, pair{"later", m{}}),
		"a version":       hello.with(pair{"op", "Pin"}, pair{"version", 2}),
		"bad for our ops": pin.with(pair{"op", "Pin"}, pair{"lease", "a\x00"}),
	} {
		t.Run(name, func(t *testing.T) {
			var q Request
			var bad *Error
			require.ErrorAs(t, DecodeRequest(pack(t, v), &q), &bad)
			require.Equal(t, KindUnsupported, bad.Kind)
			require.Contains(t, bad.Text, `operation "Pin" is unknown`)
			require.Equal(t, Request{ID: 7}, q)
		})
	}
	var q Request
	err := DecodeRequest(pack(t, pin.with(pair{"op", strings.Repeat("\x1b", 1000)})), &q)
	require.Error(t, err)
	require.Less(t, len(err.Error()), 500)
	require.NotContains(t, err.Error(), "\x1b")
}

// TestErrorOfUnknownKind: a client understands that it was refused, and the text.
func TestErrorOfUnknownKind(t *testing.T) {
	var p Reply
	require.NoError(t, DecodeReply(pack(t, m{{"id", 7}, {"error", m{{"kind", "later"}, {"text", "x"}, {"op", "pin"}}}}), &p))
	require.Equal(t, Reply{ID: 7, Error: &Error{Kind: "later", Text: "x"}}, p)
}

// TestMapOfAllFields: a request with all fields that there are is no valid one, but a map all the same.
func TestMapOfAllFields(t *testing.T) {
	q := &Request{
		ID: 1, Op: Pin, Version: 1, Session: "s", Client: "c", Fingerprint: &encoder.Fingerprint{Model: "m"}, Features: []string{"f"}, Lease: "l", Space: "p",
		Names: []string{"n"}, Seconds: 1, Prefix: true, Keep: true, Objects: []Object{{Name: "o"}}, Leases: []string{"l"}, List: true, Trace: "t",
	}
	frame, err := AppendRequest(nil, q)
	require.NoError(t, err)
	got := general(t, frame[header:], reflect.TypeFor[Request]())
	require.Equal(t, tree(reflect.ValueOf(*q)), got)
	require.Greater(t, len(got.(map[string]any)), fewPairs)
}
