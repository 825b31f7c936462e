package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What each package links of other modules, on linux/amd64 without cgo. Programs
// (cmd, examples, interop) may link what they like.
var (
	system  = []string{"golang.org/x/sys"}
	hashes  = append([]string{"github.com/zeebo/blake3", "lukechampine.com/blake3", "github.com/klauspost/cpuid/v2"}, system...)
	msgpack = append([]string{"github.com/tinylib/msgp", "github.com/philhofer/fwd"}, system...)
	waiting = append([]string{"golang.org/x/sync"}, msgpack...)
	redis   = append([]string{"github.com/redis/go-redis/v9", "github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sync"}, system...)
	bucket  = append([]string{
		"github.com/minio/minio-go/v7", "github.com/minio/crc64nvme", "github.com/minio/md5-simd", "github.com/cespare/xxhash/v2",
		"github.com/dustin/go-humanize", "github.com/google/uuid", "github.com/klauspost/compress", "github.com/klauspost/cpuid/v2",
		"github.com/klauspost/crc32", "github.com/rs/xid", "github.com/tinylib/msgp", "github.com/philhofer/fwd", "github.com/zeebo/xxh3",
		"go.yaml.in/yaml/v3", "golang.org/x/crypto", "golang.org/x/net", "golang.org/x/sync", "golang.org/x/text", "gopkg.in/ini.v1",
	}, system...)
	chunks = []string{"github.com/fxamacker/cbor/v2", "github.com/x448/float16", "github.com/zeebo/xxh3", "github.com/zeebo/blake3", "lukechampine.com/blake3", "github.com/klauspost/cpuid/v2"}
	// What only an operator's daemon links: metrics, traces, the file of its configuration, systemd's notifications,
	// and gRPC and ZeroMQ for clients of LMCache.
	serving = slices.Concat(redis, bucket, msgpack, chunks, []string{
		"google.golang.org/grpc", "google.golang.org/genproto/googleapis/rpc", "golang.org/x/net", "golang.org/x/text",
		"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "github.com/prometheus/common", "github.com/prometheus/procfs",
		"github.com/beorn7/perks", "github.com/munnerz/goautoneg", "google.golang.org/protobuf",
		"github.com/coreos/go-systemd/v22", "go.yaml.in/yaml/v3", "github.com/go-zeromq/zmq4",
	}, spans)
	// OpenTelemetry's library and exporter, and what they stand on.
	spans = []string{
		"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/trace", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/log",
		"go.opentelemetry.io/otel/exporters/otlp/otlptrace", "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp",
		"go.opentelemetry.io/proto/otlp", "go.opentelemetry.io/auto/sdk", "github.com/cenkalti/backoff/v5", "github.com/go-logr/logr",
		"github.com/go-logr/stdr", "github.com/google/uuid", "github.com/grpc-ecosystem/grpc-gateway/v2", "google.golang.org/genproto/googleapis/api",
	}
	sockets = append([]string{"github.com/go-zeromq/zmq4", "golang.org/x/text"}, waiting...)
	events  = append([]string{
		"github.com/go-zeromq/zmq4", "golang.org/x/sync", "golang.org/x/text",
		"github.com/tinylib/msgp", "github.com/philhofer/fwd",
	}, chunks...)

	lookup = slices.DeleteFunc(slices.Concat(sockets, chunks), func(m string) bool { return m == "golang.org/x/sys" })

	links = map[string][]string{
		"pycompat":               system,
		"shmring":                system,
		"pin":                    nil,
		"pin/cuda":               system,
		"shmring/memory":         system,
		"internal/sidecar":       system,
		"shmring/segment":        system,
		"shmstore":               system,
		"mmhash":                 hashes,
		"serde":                  msgpack,
		"serde/enginecore":       msgpack,
		"objstore":               msgpack,
		"objstore/check":         msgpack,
		"objstore/upstream":      msgpack,
		"lrusync":                msgpack,
		"lrusync/upstream":       msgpack,
		"mmcache":                waiting,
		"engine":                 waiting,
		"engine/zmq":             sockets,
		"engine/enginetest":      sockets,
		"engine/enginetest/wire": msgpack,
		"tier":                   nil,
		"tier/memory":            system,
		"tier/disk":              system,
		"tier/folder":            append([]string{"golang.org/x/sync"}, system...),
		"tier/redis":             redis,
		"tier/s3":                bucket,
		"inspect":                msgpack,
		"encoder":                msgpack,
		"encoder/safetensors":    nil,
		"daemon/wire":            msgpack,
		"daemon/client":          msgpack,
		"encoder/warm":           {"golang.org/x/sync"},
		"kv":                     chunks,
		"lmcache/config":         append([]string{"go.yaml.in/yaml/v3"}, chunks...),
		"kv/flow":                chunks,
		"kv/paged":               nil,
		"lmcache/engine":         chunks,
		"lmcache/lookup":         lookup,
		"kv/directory":           chunks,
		"kv/directory/shared":    slices.Concat(redis, msgpack, chunks),
		"lmcache/controller":     events,
		"lmcache/coordinator":    chunks,
		"lmcache/kvevents":       events,
		"lmcache/lm":             chunks,
		"lmcache/resp":           nil,
		"blend":                  append([]string{"golang.org/x/sys"}, chunks...),
		"blend/rope":             system,
		"blend/transformer":      append([]string{"golang.org/x/sys"}, chunks...),
		"blend/chunks":           append([]string{"golang.org/x/sys"}, chunks...),
		"preprocess":             waiting,
		"daemon":                 serving,
		"daemon/doctor":          serving,
		"agent":                  slices.Concat(hashes, msgpack, redis, bucket),
		"fuzz/linear":            {"github.com/anishathalye/porcupine"}, // for tests of others: no product imports it
	}
)

// listed is what the go command reports of a package.
type listed struct {
	ImportPath string
	Deps       []string
	Module     *struct{ Path string }
}

// TestPackagesLinkOnlyTheirModules asks the go command what is linked with every package, through any number
// of imports: no command-line library, gRPC and Prometheus for daemon alone, the clients of Redis and S3 for
// tier/redis, tier/s3 and what stands on them, and exactly what the table has.
func TestPackagesLinkOnlyTheirModules(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Deps,Module", "./...")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	all := map[string]listed{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		all[p.ImportPath] = p
	}
	checked := 0
	for path, p := range all {
		dir, ours := strings.CutPrefix(path, module+"/")
		if !ours || !counted(dir) && links[dir] == nil || strings.Contains(dir, "/internal/") {
			continue
		}
		allowed, ok := links[dir]
		require.True(t, ok, "%s: give the package its modules in this test", dir)
		linked := map[string]bool{}
		for _, dep := range p.Deps {
			if m := all[dep].Module; m != nil && m.Path != module {
				linked[m.Path] = true
			}
		}
		require.ElementsMatch(t, slices.Compact(slices.Sorted(slices.Values(allowed))), slices.Collect(maps.Keys(linked)), "the modules that %s links", dir)
		checked += len(linked)
	}
	for path, p := range all {
		if dir, ours := strings.CutPrefix(path, module+"/"); ours && dir != "fuzz/linear" && !strings.HasPrefix(dir, "fuzz/") {
			require.NotContains(t, p.Deps, module+"/fuzz/linear", "%s links the checker of histories", dir)
		}
	}
	require.Greater(t, checked, 50, "packages link some modules, and the go command listed them")
}

// What go.mod requires is linked by a package of the module, or is one of the
// libraries that tests in every package use: what single tests need belongs in
// a module below scripts.
func TestModuleRequiresOnlyWhatPackagesUse(t *testing.T) {
	tests := []string{
		"github.com/stretchr/testify", "pgregory.net/rapid", "go.uber.org/goleak",
		"github.com/vmihailenco/msgpack/v5", // of the codec, and for interop/lockstep
		"github.com/hanwen/go-fuse/v2",      // file systems that hang, for tier/folder, whose tests are inside the package
	}
	programs := []string{
		"github.com/alecthomas/kong", "github.com/schollz/progressbar/v3", "golang.org/x/term",
		"charm.land/bubbletea/v2", "github.com/charmbracelet/x/ansi",
	}
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	require.NoError(t, err)
	var file struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	require.NoError(t, json.Unmarshal(out, &file))
	require.Greater(t, len(file.Require), 5, "go.mod was read")
	linked := slices.Concat(tests, programs)
	for _, modules := range links {
		linked = append(linked, modules...)
	}
	for _, r := range file.Require {
		if !r.Indirect {
			require.Contains(t, linked, r.Path, "go.mod requires it directly")
		}
	}
}
