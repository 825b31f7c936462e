package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/kv"
)

// stockFiles are what the FS adapter of lmcache 0.5.6 has written: names, first byte and SHA-256 of 512 bytes, each of
// which is one more than the byte in front of it.
var stockFiles = []struct {
	name  string
	first int
	sum   string
}{
	{"org-SEP-model@0x01000100@0@000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f.data", 0,
		"110009dcee21620b166f3abfecb5eff7a873be729d1c2d53822e7acc5f34eb9b"},
	{"org-SEP-model@0x02010201@3@0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20@tenant.data", 5,
		"cd1295c979bd514e554c59a7cb246606cc2bf87bc5420fea0a457c876e802131"},
}

func counting(first, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(first + i)
	}
	return b
}

// saveLayouts writes a file for --layouts.
func saveLayouts(t *testing.T, all ...kv.Layout) string {
	t.Helper()
	b, err := json.Marshal(all)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "layouts.json")
	require.NoError(t, os.WriteFile(file, b, 0o600))
	return file
}

// TestMigrate: files that LMCache wrote, and what lies beside them. The source stays, and a second run moves nothing.
func TestMigrate(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	write := func(name string, b []byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(from, name), b, 0o644))
	}
	for _, f := range stockFiles {
		b := counting(f.first, 512)
		sum := sha256.Sum256(b)
		require.Equal(t, f.sum, hex.EncodeToString(sum[:]))
		write(f.name, b)
	}
	one, two := layoutOf("org/model", 1), layoutOf("org/model", 2)
	two.Groups = append(two.Groups, two.Groups[0], two.Groups[0], two.Groups[0])
	twin := layoutOf("twin", 1)
	other := twin
	other.Engine = "another"
	layouts := saveLayouts(t, one, two, twin, other)

	args := []string{"migrate", "--layouts", layouts, from, to}
	out, errOut, code := ringcache(t, args...)
	require.Zero(t, code, errOut)
	require.Equal(t, "2 objects copied (1024 bytes), 0 there already, 0 failed\n", out)
	spaces := []string{}
	for i, l := range []kv.Layout{one, two} {
		space, err := l.Space(i, 3*i, []string{"", "tenant"}[i])
		require.NoError(t, err)
		spaces = append(spaces, space)
		name := strings.Split(strings.TrimSuffix(stockFiles[i].name, ".data"), "@")[3]
		got, errOut, code := ringcache(t, "tier", "get", "--space", space, to, name)
		require.Zero(t, code, errOut)
		require.Equal(t, counting(stockFiles[i].first, 512), []byte(got))
	}
	out, _, _ = ringcache(t, "tier", "ls", "--json", "--space", spaces[1], to)
	require.Contains(t, out, `"tenant":"tenant"`, "the salt's quota is charged")

	const hash = "@0@000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f.data"
	write("org-SEP-model@0x01000100@0@ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f.data", counting(0, 511))
	write("gone@0x01000100"+hash, counting(0, 512))
	write("twin@0x01000100"+hash, counting(0, 512))
	write("org-SEP-model@0x02010100"+hash, counting(0, 512))
	write("org-SEP-model@1@0@1234abcd@bfloat16.data", counting(0, 540))
	write("org-SEP-model@0x01000100@0@aa.tmp", nil)
	before := contents(t, from)
	out, errOut, code = ringcache(t, args...)
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "6 files of "+from+" were not moved")
	require.Contains(t, out, "0 objects copied (0 bytes), 2 there already, 0 failed\n")
	for _, why := range []string{
		`it has 511 bytes, and a chunk of "org/model" has 512: the chunk size`, `no engine has registered the model "gone" with 1 workers and a group 0: gone@`,
		`2 layouts of "twin" have objects of 512 bytes: choose by --word`, "the rank 02010100 is of several machines",
		"if it is of LMCache's FS connector", "no file of LMCache's FS adapter",
	} {
		require.Contains(t, out, why)
	}
	require.Equal(t, before, contents(t, from), "nothing is written to the source")

	out, errOut, code = ringcache(t, append(args, "--json", "--word=another")...)
	require.Equal(t, 1, code, errOut)
	lines := bytes.Split(bytes.TrimSpace([]byte(out)), []byte("\n"))
	require.Len(t, lines, 7+1, "only twin has a layout with the word")
	require.JSONEq(t, `{"copied":1,"bytes":512,"there":0,"failed":0}`, string(lines[7]))
	out, errOut, code = ringcache(t, "tier", "verify", to)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "3 objects with 1536 bytes read, 0 damaged")
}

// TestMigrateForADaemon: what lmcache server had is found by the daemon, with the layouts that it remembers.
func TestMigrateForADaemon(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	s := kvServing(t)
	_, errOut, code := ringcache(t, "migrate", "--socket", s.socket, from, to)
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "name them by --layouts")
	s.start()
	s.register("org/model", 2)
	tokens, args := promptOf(16, 7)
	h, err := kv.NewHasher(kv.Scheme{ChunkTokens: 4})
	require.NoError(t, err)
	chain := h.NewChain()
	require.NoError(t, chain.SetTokens(tokens))
	for worker := range 2 {
		rank, err := kv.NewRank(2, worker, 2, worker)
		require.NoError(t, err)
		for i := range 3 {
			name, err := kv.ObjectKey{Hash: chain.Hash(i), Model: "org/model", Rank: rank, Salt: "me"}.FileName()
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(from, name), counting(i, 512), 0o600))
		}
	}
	out, errOut, code := ringcache(t, "migrate", "--socket", s.socket, from, to)
	require.Zero(t, code, errOut)
	require.Equal(t, "6 objects copied (3072 bytes), 0 there already, 0 failed\n", out)
	s.signal(syscall.SIGTERM)
	require.Zero(t, s.end())
	s.start("--disk", to)
	out, errOut, code = ringcache(t, append([]string{"kv", "find", "--socket", s.socket, "--salt", "me"}, args...)...)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "12 of 16 tokens would be loaded")
	require.Regexp(t, `(?m)^memory +0 +0 +0 B\ndisk +12 +6 +3\.0 KiB$`, out)

	_, errOut, code = ringcache(t, "migrate", "--socket", s.socket, from, to)
	require.Equal(t, 1, code, "the daemon has it")
	require.Contains(t, errOut, to)
	_, errOut, code = ringcache(t, "migrate", "--socket", s.socket, to, from)
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "use `ringcache tier copy`")
}
