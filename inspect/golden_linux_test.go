package inspect_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/inspect"
	"github.com/ringcache/ringcache/internal/goldentest"
)

// TestGoldenRings: of segments that vLLM wrote, every chunk that is shown is one that vLLM has put there,
// with its size, and every one that vLLM counts in the newest lap is shown.
func TestGoldenRings(t *testing.T) {
	steps, shown, live := 0, 0, 0
	for _, f := range goldentest.Files(t, "ring_images") {
		var scenarios []struct {
			Name  string
			N     uint64
			Steps []struct {
				RingMD  [][2]uint64 `json:"ring_md"`
				Segment string
			}
		}
		f.Decode(t, &scenarios)
		offset := int64(f.Generation(t).DataOffset)
		for _, sc := range scenarios {
			put := map[uint32]uint64{} // where each id was put, in the ring
			for i, st := range sc.Steps {
				for _, md := range st.RingMD {
					put[uint32(md[0])] = md[1] % sc.N
				}
				dir := t.TempDir()
				require.NoError(t, os.WriteFile(filepath.Join(dir, "ring"), goldentest.Hex(t, st.Segment), 0o600))
				x := open(t, dir, "ring")
				found := map[uint32]bool{}
				for o := range x.Objects() {
					at, ok := put[o.ID]
					require.True(t, ok, "%s %s step %d: id %d", f.Name, sc.Name, i, o.ID)
					require.Equal(t, int64(at), o.Address)
					require.NotZero(t, o.Size)
					found[o.ID] = true
				}
				if len(found) > 0 {
					require.Equal(t, offset, summary(t, x).DataOffset)
				}
				for _, md := range st.RingMD {
					live++
					if found[uint32(md[0])] {
						shown++
					}
				}
				steps++
			}
		}
	}
	t.Logf("%d segments, %d of %d chunks that count were found", steps, shown, live)
	require.Greater(t, steps, 100)
	require.Greater(t, shown*10, live*9)
}

// TestHostileBytes: whatever files contain, looking ends with an answer.
func TestHostileBytes(t *testing.T) {
	dir := killed(t)
	for _, name := range []string{"level", "pool"} {
		for _, suffix := range []string{"", ".ctl", ".leases"} {
			path := filepath.Join(dir, name+suffix)
			whole, err := os.ReadFile(path)
			if os.IsNotExist(err) {
				continue
			}
			require.NoError(t, err)
			for at := 0; at < len(whole); at += max(1, len(whole)/97) {
				for _, v := range []byte{0, 0xff, 0x80} {
					change(t, path, func(b []byte) {
						for i := range min(12, len(b)-at) {
							b[at+i] = v
						}
					})
					lookAtAll(t, dir, name)
					change(t, path, func(b []byte) { copy(b, whole) })
				}
			}
			for _, n := range []int{len(whole) / 2, 4096, 8, 0} {
				require.NoError(t, os.Truncate(path, int64(n)))
				lookAtAll(t, dir, name)
				require.NoError(t, os.Truncate(path, int64(len(whole))))
				change(t, path, func(b []byte) { copy(b, whole) })
			}
		}
	}
	require.Len(t, objects(open(t, dir, "level")), 3, "all is as it was")
}

// lookAtAll asks for everything.
func lookAtAll(t testing.TB, dir, name string) {
	t.Helper()
	all, err := inspect.List(inspect.Options{Dir: dir})
	require.NoError(t, err)
	require.NotEmpty(t, all)
	x, err := inspect.Open(name, inspect.Options{Dir: dir})
	require.NoError(t, err)
	s, err := x.Summary()
	require.NoError(t, err)
	require.NotEmpty(t, s.State)
	for o := range x.Objects() {
		if o.State == inspect.Damaged {
			require.NotEmpty(t, o.Problem)
		}
	}
	_, _ = x.Holders() // its error is about a damaged table
	_, err = x.Map(50)
	require.NoError(t, err)
	require.NoError(t, x.Close())
}

// TestCutWhileItIsOpen: a file that is cut short under a segment that is open ends no process.
func TestCutWhileItIsOpen(t *testing.T) {
	for _, suffix := range []string{"", ".ctl", ".leases"} {
		dir := killed(t)
		x := open(t, dir, "level")
		require.NoError(t, os.Truncate(filepath.Join(dir, "level"+suffix), 100))
		s := summary(t, x)
		if suffix != ".leases" {
			require.Equal(t, inspect.Damaged, s.State)
		}
		require.NotEmpty(t, s.Problem, suffix)
		for range x.Objects() {
		}
		_, _ = x.Holders()
		_, err := x.Map(10)
		require.NoError(t, err)
	}
}

func FuzzLook(f *testing.F) {
	f.Add(uint16(0), []byte("RINGCTL\x00"), uint8(0))
	f.Add(uint16(8192), []byte{0xff, 0xff, 0xff, 0xff}, uint8(1))
	f.Add(uint16(4096), []byte("FREEFREE"), uint8(2))
	dir := killed(f)
	files := []string{"level", "level.ctl", "level.leases", "pool", "pool.ctl"}
	f.Fuzz(func(t *testing.T, at uint16, junk []byte, file uint8) {
		path := filepath.Join(dir, files[int(file)%len(files)])
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		change(t, path, func(b []byte) { copy(b[min(int(at), len(b)):], junk) })
		lookAtAll(t, dir, files[int(file)%len(files)/3*3])
		change(t, path, func(b []byte) { copy(b, whole) })
	})
}
