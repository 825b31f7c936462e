package archtest

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The exported names of the library are bounded, without and with methods, since a large API is hard to learn and
// to keep, and grows by one harmless name at a time. The
// limits only go down, but for a feature that needs names, with its
// reason here: a change that removes names lowers them to what TestExportedNames prints.
const (
	// 281 and 545, and pin, pin/cuda and Segment.Pin: registering memory with a device; and objstore/check,
	// which checks a segment while its store has it open. serde: Signature makes an Address comparable;
	// AppendAddress, DecodeAddress, Decoder and Plan.Reset work in memory that the caller has. Reader.GetInto
	// is the same for views, and Semaphore.TryLock counts a read without a context. Own, Owner, Owners and
	// Fits of shmring.Pool: a store needs no map of its chunks beside the pool's. mmcache.Wire's Item and
	// AppendAddress make an address when it is asked for. engine.Receiver and enginecore.OutputsReader take
	// an engine's answers without a goroutine or memory of their own. Request.BeginIn of shmstore, and Begin
	// of objstore's Request, begin requests in the memory of ended ones. tier, its three levels and encoder
	// are a capability of their own: objects in levels, and the encoder cache on them; shmstore's Reader.List
	// and Format look at a segment beside its process, and Parent, Yield, Resume and others keep what a level
	// in memory promises. daemon, daemon/wire, daemon/client and encoder/warm are a capability, too: a
	// protocol has a name for each of its messages, answers and errors. ClientState and Use of daemon/wire
	// are what an operator is shown of clients; Check of disk and of daemon's Config say what would keep a
	// daemon from its start. tier.Copy, with Copied, fills a level that is new; ErrPath and Indexed of disk
	// tell objects from what else lies there. preprocess makes items from photos: it was an example, whose
	// names were not counted. tier.Account, with Charge, LeaseSummary and WriteTime, in place of a second
	// record of leases above the memory level. kv is a capability: chunk hashes, LMCache's keys, what makes
	// bytes fit, and the longest prefix. TokenDatabase and ParseTags are those of LMCache's in-process
	// engine, kv/flow is what its connector decides, kv/paged and lmcache/engine move its KV: 11 layouts and
	// 4 formats have a name each. lmcache/lookup is its scheduler's wire, and lmcache/config its options and
	// what they mean here. lmcache/lm is a protocol with a name for each of its commands, codes and forms,
	// lmcache/resp a server for clients of Redis. kv/directory knows who holds which chunks, and
	// lmcache/controller, lmcache/coordinator and lmcache/kvevents are the wires by which engines report it;
	// kvevents.Handler is for routers without Go, and coordinator.Reporter for servers that report to one.
	// blend, with blend/rope, blend/transformer and blend/chunks, is a capability of its own: KV that is not a
	// prefix. inspect and daemon/doctor are one: what operators see of segments and machines, each state of a
	// segment and an object has a name; with what inspect needs of tier/memory and of the daemon's Config.
	// kv/directory/shared, with Change and what it needs of a Directory, is what directories on several hosts
	// share; Client of tier/redis is its way to a Redis. tier.Work is a call of a level, for spans.
	// tier/s3 is a level: Open, Options and Level. tier/folder is one: Open, Options, Check, Identify and the
	// methods of tier.Level; HasSums of disk says of a layout what both levels of folders ask.
	topLevelLimit    = 776
	withMethodsLimit = 1431
)

// names counts the exported names of a package.
type names struct {
	topLevel int // constants, variables, functions and types
	methods  int // exported methods of exported types; not those of interfaces, nor fields
}

// counted reports whether the names of a package are names that a user of the library meets.
// Test doubles, harnesses, upstream's step-by-step calls and programs are not.
func counted(dir string) bool {
	parts := strings.Split(dir, "/")
	switch parts[0] {
	case "internal", "fuzz", "cmd", "examples", "interop", "bench", "scripts":
		return false
	}
	last := parts[len(parts)-1]
	if slices.Contains(parts, "internal") {
		return false
	}
	return !slices.Contains(parts, "enginetest") && last != "upstream"
}

// TestExportedNames prints and bounds the number of exported names:
//
//	go test ./internal/archtest -run TestExportedNames -v
func TestExportedNames(t *testing.T) {
	all := pages(t)
	var sum names
	t.Logf("%-20s %9s %7s", "package", "top-level", "methods")
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		if !counted(dir) {
			continue
		}
		n := names{topLevel: len(exported(all[dir]))}
		for _, typ := range all[dir].Types {
			for _, m := range typ.Methods {
				if ast.IsExported(m.Name) && m.Level == 0 { // not promoted from an embedded type
					n.methods++
				}
			}
		}
		t.Logf("%-20s %9d %7d", dir, n.topLevel, n.methods)
		sum.topLevel += n.topLevel
		sum.methods += n.methods
	}
	t.Logf("%-20s %9d %7d, with methods %d", "all", sum.topLevel, sum.methods, sum.topLevel+sum.methods)
	require.Greater(t, sum.topLevel, 100, "the walk found the packages")
	require.LessOrEqual(t, sum.topLevel, topLevelLimit, "top-level names: use fewer, or give the reason beside the raised limit")
	require.LessOrEqual(t, sum.topLevel+sum.methods, withMethodsLimit, "names with methods: use fewer, or give the reason beside the raised limit")
}
