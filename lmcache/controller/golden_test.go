package controller

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/kv/directory"
)

type golden struct {
	Class  string          `json:"class"`
	Fields json.RawMessage `json:"fields"`
	Hex    string          `json:"hex"`
}

func (g golden) bytes(t testing.TB) []byte {
	b, err := hex.DecodeString(g.Hex)
	require.NoError(t, err)
	return b
}

func goldens(t testing.TB) (all []golden) {
	b, err := os.ReadFile("testdata/messages.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &all))
	return all
}

// TestGoldenIn: every message that comes in is read, as MessagePack and as JSON, to the same.
func TestGoldenIn(t *testing.T) {
	n := 0
	for _, g := range goldens(t) {
		if required[g.Class] == nil {
			_, err := parse(g.bytes(t))
			require.ErrorIs(t, err, errInvalid)
			continue
		}
		n++
		m, err := parse(g.bytes(t))
		require.NoError(t, err, g.Class)
		require.Equal(t, g.Class, m.Type)
		again, err := parse(g.Fields)
		require.NoError(t, err, g.Class)
		if g.Class == "LookupMsg" {
			require.Len(t, m.Tokens, 300)
		}
		if len(m.Operations) > 0 {
			require.Len(t, m.Operations, 12)
			require.Equal(t, operation{"admit", 1<<64 - 1, 6}, m.Operations[6])
			require.Equal(t, operation{"admit", 1 << 63, 10}, m.Operations[10], "the lowest number")
			require.Equal(t, operation{"evict", 127, 11}, m.Operations[11])
		}
		require.Equal(t, m, again, g.Class)
		for i := range required[g.Class] { // one field less
			var names map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(g.Fields, &names))
			delete(names, required[g.Class][i])
			b, err := json.Marshal(names)
			require.NoError(t, err)
			_, err = parse(b)
			require.ErrorContains(t, err, required[g.Class][i])
		}
	}
	require.Equal(t, 28, n)
}

// TestGoldenOut: every message that goes out has the bytes that LMCache's own classes make.
func TestGoldenOut(t *testing.T) {
	want := map[string]bool{}
	for _, g := range goldens(t) {
		want[g.Hex] = true
	}
	commands := begin("HeartbeatRetMsg", 1).list("commands", 1)
	commands.b = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(commands.b, 3), "command_type"), "full_sync")
	for _, b := range [][]byte{
		begin("FullSyncStartRetMsg", 3).text("sync_id", "s").truth("accepted", true).textOrNil("error_msg", "").b,
		begin("FullSyncStartRetMsg", 3).text("sync_id", "s").truth("accepted", false).text("error_msg", "why").b,
		begin("FullSyncStatusRetMsg", 5).text("sync_id", "s").truth("is_complete", false).float("global_progress", 0.5).
			truth("can_exit_freeze", false).numbers("missing_batches", []int64{0, 300}).b,
		begin("ClearRetMsg", 2).text("event_id", "e").number("num_tokens", 512).b,
		begin("PinRetMsg", 2).text("event_id", "e").number("num_tokens", 512).b,
		errorMsg(errors.New("why")),
		commandFor(&message{Type: "ClearMsg", EventID: "e", Location: "LocalCPUBackend"}, directory.Worker{}),
		commandFor(&message{Type: "PinMsg", EventID: "e", Location: "LocalCPUBackend", Tokens: []int64{1, 2, 300}},
			directory.Worker{}),
		commandFor(&message{Type: "HealthMsg", EventID: "e"}, directory.Worker{}),
		commands.text("reason", "worker_re_registered").textOrNil("args", "").b,
	} {
		require.True(t, want[hex.EncodeToString(b)], "%q", b)
	}
}

// FuzzParse: no message makes parse panic, or take more than a small multiple of its bytes.
func FuzzParse(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.bytes(f))
		f.Add([]byte(g.Fields))
	}
	f.Add([]byte("\xdf\xff\xff\xff\xff"))
	f.Add([]byte("{" + strings.Repeat(`"a":[`, 10_000)))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			require.ErrorIs(t, err, errInvalid)
			return
		}
		require.LessOrEqual(t, len(m.Tokens)+len(m.Keys)+len(m.Hashes)+len(m.Operations), len(b))
	})
}

// TestListOfNoOperations: a list that can't be one takes no memory: an operation has 32 times the bytes of a nil.
func TestListOfNoOperations(t *testing.T) {
	const n = 1 << 20
	b := msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 2), "type"), "BatchedKVOperationMsg")
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "operations"), n)
	b = append(b, bytes.Repeat([]byte{0xc0}, n)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := parse(b)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "a list of 1048576 elements in 1048576 bytes")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
	b = msgp.AppendString(msgp.AppendMapHeader(nil, 3), "op_type")
	b = msgp.AppendInt(msgp.AppendString(msgp.AppendString(b, ""), "key"), 0)
	require.Len(t, msgp.AppendInt(msgp.AppendString(b, "seq_num"), 0), leastOperation)
}
