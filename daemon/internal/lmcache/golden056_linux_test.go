package lmcache

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// methods056 are the methods of 0.5.6, by how the recorded calls begin.
var methods056 = []struct{ call, method string }{
	{"Noop", "DebugService/Noop"}, {"Ping", "ControllerService/Ping"}, {"GetChunkSize", "ControllerService/GetChunkSize"},
	{"GetExperimental", "ControllerService/GetExperimental"}, {"Clear", "ControllerService/Clear"},
	{"PrepareStore", "EngineDrivenService/PrepareStore"}, {"CommitStore", "EngineDrivenService/CommitStore"},
	{"PrepareRetrieve", "EngineDrivenService/PrepareRetrieve"}, {"CommitRetrieve", "EngineDrivenService/CommitRetrieve"},
	{"Register", "EngineDrivenService/RegisterKvCacheEngineDrivenContext"}, {"Unregister", "EngineDrivenService/UnregisterKvCacheEngineDrivenContext"},
	{"Lookup", "LookupService/Lookup"}, {"WaitPrefetchStatus", "LookupService/WaitPrefetchStatus"},
	{"QueryPrefetchStatus", "LookupService/QueryPrefetchStatus"}, {"EndSession", "LookupService/EndSession"},
}

// differs056 are the calls that this server answers in another way, and why.
var differs056 = map[string]string{
	"Ping with an id":                    "the first answer about an unknown worker tells it to register",
	"PrepareStore before registration":   "an error ends the engine: nothing to store",
	"PrepareStore with an unaligned end": "an error ends the engine: the whole chunks",
	"Lookup with num_kv_readers 0":       "as one reader",
	"GetExperimental":                    "there are events of KV, which the recorded server had switched off",
}

// TestGoldenExchangesOf056: recorded calls of a stock server of 0.5.6 get the same answers.
func TestGoldenExchangesOf056(t *testing.T) {
	e := newBed(t, nil).engine("golden", since056)
	checked := 0
	for _, x := range recorded(t, "testdata/mp_grpc.0.5.6.json", "calls") {
		method := ""
		for _, m := range methods056 {
			if strings.HasPrefix(x.Call, m.call) {
				method = m.method
			}
		}
		require.NotEmpty(t, method, x.Call)
		got, err := e.raw("/lmcache.mp."+method, unhex(t, x.Request))
		if why, may := differs056[x.Call]; may {
			require.NoError(t, err, x.Call)
			t.Logf("%s: %s", x.Call, why)
			continue
		}
		checked++
		switch {
		case x.Error != nil:
			require.Error(t, err, x.Call)
			continue
		case strings.HasPrefix(x.Call, "Register"): // the name of the segment
			require.NoError(t, err, x.Call)
			continue
		}
		require.NoError(t, err, x.Call)
		number := protowire.Number(0)
		switch {
		case strings.HasPrefix(x.Call, "PrepareStore"):
			number = 1
		case strings.HasPrefix(x.Call, "PrepareRetrieve"):
			number = 3
		}
		if number == 0 {
			require.Equal(t, x.Reply, hexOf(got), x.Call)
			continue
		}
		want, have := contextOf(t, field(t, unhex(t, x.Reply), number)), contextOf(t, field(t, got, number))
		for _, c := range []map[string]any{want, have} {
			for _, s := range c["slots"].([]any) {
				delete(s.(map[string]any), "offset")
			}
		}
		require.Equal(t, plain(t, want), plain(t, have), x.Call)
	}
	t.Logf("%d calls answered as recorded", checked)
	require.Greater(t, checked, 20)
}
