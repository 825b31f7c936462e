package lmcache

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
)

// exchange is a recorded call of a stock server.
type exchange struct {
	Call    string
	Message string
	Request string `json:"request_hex"`
	Reply   string `json:"reply_hex"`
	Error   *struct{ Code, Details string }
	// Context is the decoded context of a reply.
	Context map[string]any
}

// methods057 are the methods of the messages of 0.5.7.
var methods057 = map[string]string{
	"Noop": "ManagementService", "NegotiateChunkSize": "ManagementService", "GetChunkSize": "ManagementService", "GetExperimental": "ManagementService",
	"Ping": "ManagementService", "Clear": "ManagementService",
	"Lookup": "LookupService", "QueryPrefetchStatus": "LookupService", "FreeLookupLocks": "LookupService", "EndSession": "LookupService",
	"RegisterKvCacheEngineDrivenContext": "EngineDrivenService", "UnregisterKvCacheEngineDrivenContext": "EngineDrivenService",
	"PrepareStore": "EngineDrivenService", "CommitStore": "EngineDrivenService", "PrepareRetrieve": "EngineDrivenService", "CommitRetrieve": "EngineDrivenService",
}

// differs are the calls that this server answers in another way, and why.
var differs = map[string]string{
	"Ping of an unknown instance":                                              "the first answer tells it to register again",
	"PrepareStore before registration":                                         "an error ends the engine: nothing to store",
	"PrepareRetrieve of an unknown instance":                                   "an error ends the engine: nothing to load",
	"PrepareStore, end in a chunk":                                             "an error ends the engine: the whole chunks",
	"PrepareStore with skipped_chunks from a one-group worker":                 "an error ends the engine: what there is of the lists counts",
	"PrepareStore, skip lists for one group only":                              "an error ends the engine: what there is of the lists counts",
	"PrepareStore, skip index 3 of 3":                                          "an error ends the engine: what there is of the lists counts",
	"CommitStore with a pickle body":                                           "an error ends the engine: not stored",
	"CommitStore, pickle":                                                      "an error ends the engine: not stored",
	"CommitStore, no body":                                                     "an error ends the engine: not stored",
	"CommitStore, one tensor for two chunks":                                   "an error ends the engine: not stored",
	"CommitStore, other shape":                                                 "an error ends the engine: not stored",
	"Lookup, readers 0":                                                        "as one reader",
	"QueryPrefetchStatus a second time":                                        "the answer is given again, as its reply may have been lost",
	"PrepareRetrieve without a look-up":                                        "what is there is loaded, whoever looked it up",
	"a 0.5.6 key (40 packed varints in field 4), read by the 0.5.7rc2 classes": "no call",
	"SubscribeKvEvents, observability off":                                     "no events yet",
	"CommitStore with a body, although shared memory is on":                    "as recorded, and the worker gets bytes within messages from then on",
}

// TestGoldenExchanges: recorded calls of stock servers get the same answers, but for names, places and the
// listed calls.
func TestGoldenExchanges(t *testing.T) {
	checked, other := 0, 0
	for _, part := range []string{"negotiation", "shared_memory", "inline", "two_groups_shared_memory", "two_groups_inline"} {
		t.Run(part, func(t *testing.T) {
			b := newBed(t, func(b *bed) { b.o.Bodies = strings.HasSuffix(part, "inline") })
			e := b.engine("golden", unknown)
			b.server.mu.Lock()
			b.server.state.Chunk = 0
			b.server.mu.Unlock()
			requests := map[string]bool{}
			for _, x := range recorded(t, "testdata/mp_grpc.0.5.7rc2.json", part) {
				method, found := strings.CutSuffix(x.Message, "Request")
				if !found {
					other++
					continue
				}
				require.NotEmpty(t, methods057[method], method)
				var request []byte
				if strings.Contains(x.Request, "..") { // the recording leaves bytes out
					request = groupedBody(t)
				} else {
					request = unhex(t, x.Request)
				}
				if method == "Lookup" {
					requests[string(field(t, field(t, request, 1), 7))] = true
				}
				got, err := e.raw("/lmcache.mp."+methods057[method]+"/"+method, request)
				why, may := differs[x.Call]
				switch {
				case may:
					t.Logf("%s: %s", x.Call, why)
					require.NoError(t, err, x.Call)
					other++
				case x.Error != nil:
					require.Error(t, err, x.Call)
					checked++
				default:
					require.NoError(t, err, x.Call)
					compare(t, x, method, got)
					checked++
				}
			}
			for id := range requests {
				e.must("LookupService/EndSession", &mp.EndSessionRequest{RequestId: id}, &mp.EndSessionResponse{})
			}
			for _, l := range b.store.Leases() { // a load that the recording does not commit
				require.Contains(t, l.ID, "/load 0 rz 2", "locks that are left")
			}
		})
	}
	t.Logf("%d calls answered as recorded, %d otherwise", checked, other)
	require.Greater(t, checked, 70)
}

// recorded returns the calls of a part of a file.
func recorded(t testing.TB, file, part string) (out []exchange) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var parts map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(b, &parts))
	require.NoError(t, json.Unmarshal(parts[part], &out))
	return out
}

// compare compares an answer with the recorded one: equal bytes, or, of what has slots, equal but for their
// places.
func compare(t testing.TB, x exchange, method string, got []byte) {
	t.Helper()
	switch method {
	case "RegisterKvCacheEngineDrivenContext":
		return // the name of the segment
	case "PrepareStore", "PrepareRetrieve":
	default:
		require.Equal(t, x.Reply, hexOf(got), x.Call)
		return
	}
	if x.Context == nil {
		if _, rest, short := strings.Cut(x.Reply, "..("); short { // the recording leaves bytes out
			require.Equal(t, rest, fmt.Sprintf("%d bytes)", len(got)), x.Call)
			return
		}
		require.Equal(t, x.Reply, hexOf(got), x.Call)
		return
	}
	number := protowire.Number(1)
	if method == "PrepareRetrieve" {
		number = 3
		require.Equal(t, uint64(1), varint(t, got, 1), x.Call)
	}
	have := contextOf(t, field(t, got, number))
	for _, c := range []map[string]any{x.Context, have} {
		for _, s := range c["slots"].([]any) {
			delete(s.(map[string]any), "offset")
		}
	}
	require.Equal(t, plain(t, x.Context), plain(t, have), x.Call)
}

// plain is a value as JSON reads it.
func plain(t testing.TB, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	var out any
	require.NoError(t, json.Unmarshal(b, &out))
	return out
}

func contextOf(t testing.TB, b []byte) map[string]any {
	t.Helper()
	v, rest, err := msgp.ReadIntfBytes(b)
	require.NoError(t, err)
	require.Empty(t, rest)
	return v.(map[string]any)
}

// field returns the bytes of a field of a message, nil if there is none.
func field(t testing.TB, b []byte, number protowire.Number) []byte {
	t.Helper()
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		require.Positive(t, size)
		b = b[size:]
		if n == number && kind == protowire.BytesType {
			v, size := protowire.ConsumeBytes(b)
			require.Positive(t, size)
			return v
		}
		size = protowire.ConsumeFieldValue(n, kind, b)
		require.Positive(t, size)
		b = b[size:]
	}
	return nil
}

func varint(t testing.TB, b []byte, number protowire.Number) uint64 {
	t.Helper()
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		require.Positive(t, size)
		b = b[size:]
		if n == number && kind == protowire.VarintType {
			v, size := protowire.ConsumeVarint(b)
			require.Positive(t, size)
			return v
		}
		size = protowire.ConsumeFieldValue(n, kind, b)
		require.Positive(t, size)
		b = b[size:]
	}
	return 0
}

// groupedBody is the request of a CommitStore that the recording has without its bytes: chunks 0, 1, 2 of the
// first group and chunk 2 of the second one.
func groupedBody(t testing.TB) []byte {
	t.Helper()
	calls := recorded(t, "testdata/mp_grpc.0.5.7rc2.json", "two_groups_inline")
	var q mp.CommitStoreRequest
	require.NoError(t, proto.Unmarshal(unhex(t, calls[2].Request), &q)) // PrepareStore has the same fields
	l := []kv.Group{{Layers: 2, Hidden: 8, DType: "bfloat16", Planes: 2, Slots: 16}, {Layers: 1, Hidden: 4, DType: "float32", Planes: 1, Slots: 16, Window: 1}}
	var objects []object
	var placed []tier.Placed
	for chunk := range 3 {
		objects, placed = append(objects, object{chunk: chunk}), append(placed, tier.Placed{Bytes: make([]byte, l[0].Bytes())})
	}
	objects, placed = append(objects, object{chunk: 2, group: 1}), append(placed, tier.Placed{Bytes: make([]byte, l[1].Bytes())})
	q.Data = appendBodies(nil, l, objects, placed, 0)
	out, err := proto.Marshal(&q)
	require.NoError(t, err)
	return out
}
