package warm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func contents(n int) (out []content) {
	for i := range n {
		c := content{size: int64(i + 1)}
		c.sum[0], c.sum[31] = byte(i), byte(255-i)
		out = append(out, c)
	}
	return out
}

// TestTornState: a state that was cut at any byte has all lines but the last, and takes new ones.
func TestTornState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	all := contents(4)
	s, err := openState(path, `a "model"`+"\n")
	require.NoError(t, err)
	for _, c := range all[:3] {
		require.NoError(t, s.add(c))
	}
	require.NoError(t, s.close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for n := range len(whole) + 1 {
		cut := filepath.Join(t.TempDir(), "cut")
		require.NoError(t, os.WriteFile(cut, whole[:n], 0o600))
		s, err := openState(cut, `a "model"`+"\n")
		require.NoError(t, err, n)
		lines := max(0, strings.Count(string(whole[:n]), "\n")-1)
		require.Len(t, s.done, lines, n)
		require.NoError(t, s.add(all[3]))
		require.NoError(t, s.close())

		s, err = openState(cut, `a "model"`+"\n")
		require.NoError(t, err)
		require.True(t, s.has(all[3]), "what is added to a torn file is there, cut at %d", n)
		for i := range lines {
			require.True(t, s.has(all[i]))
		}
		require.NoError(t, s.close())
	}
}

func TestStrangeState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for _, text := range []string{"photos/a.png\nphotos/b.png\n", "ringcache warm 2\n", "\n", "r\n", stateHead[:5] + "x"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := openState(path, "m")
		require.ErrorContains(t, err, "not a state of ringcache warm")
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(got), "it is left as it is")
	}
	good := (&state{model: "m"}).line(contents(1)[0])
	for name, line := range map[string]string{
		"long":     strings.Repeat("x", 1<<20) + "\n",
		"long end": strings.Repeat("x", 1<<20) + " " + good,
		"no sum":   "x" + good[1:],
		"short":    good[2:],
		"zero":     strings.Replace(good, " 1 ", " 0 ", 1),
		"negative": strings.Replace(good, " 1 ", " -1 ", 1),
		"huge":     strings.Replace(good, " 1 ", " 99999999999999999999 ", 1),
		"quotes":   strings.Replace(good, `"m"`, `"m`, 1),
		"other":    strings.Replace(good, `"m"`, `"n"`, 1),
		"bytes":    "\x00\xff\n",
		"empty":    "\n",
	} {
		require.NoError(t, os.WriteFile(path, []byte(stateHead+line+(&state{model: "m"}).line(contents(2)[1])), 0o600))
		s, err := openState(path, "m")
		require.NoError(t, err, name)
		require.False(t, s.has(contents(1)[0]), name)
		require.True(t, s.has(contents(2)[1]), "the line after it counts: %s", name)
		require.Len(t, s.done, 1)
		require.NoError(t, s.close())
	}
}

// TestTwoRunsShareAState: each line is one write to the end.
func TestTwoRunsShareAState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	a, err := openState(path, "m")
	require.NoError(t, err)
	b, err := openState(path, "m")
	require.NoError(t, err)
	for i, c := range contents(100) {
		if i%2 == 0 {
			require.NoError(t, a.add(c))
		} else {
			require.NoError(t, b.add(c))
		}
	}
	require.NoError(t, a.close())
	require.NoError(t, b.close())
	s, err := openState(path, "m")
	require.NoError(t, err)
	require.Len(t, s.done, 100)
	require.NoError(t, s.close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), fmt.Sprint(info.Mode()))
}
