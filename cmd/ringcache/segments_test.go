//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/inspect"
	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

func photo(n int) *serde.Item {
	return &serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key: "pixel_values", Data: &serde.Tensor{DType: "uint8", Shape: []int{n}, Data: bytes.Repeat([]byte{7}, n)},
		Field: serde.Field{Kind: serde.Batched},
	}}}
}

// makePool makes the segment of a frontend, with objects under a request that stays open.
func makePool(dir, name string) (objstore.Store, error) {
	w, err := objstore.CreatePool(objstore.Options{Name: name, Owner: "frontend", Dir: dir, RingSize: 256 << 10,
		MaxObjectSize: 64 << 10, Readers: 1, MaxObjects: 64})
	if err != nil {
		return nil, err
	}
	r, err := w.Begin("request-1")
	if err != nil {
		return nil, err
	}
	for i, n := range []int{20000, 40000, 300} {
		if _, err := r.Put(fmt.Sprint("photo-", i), photo(n), objstore.PutOptions{Tenant: "team-a"}); err != nil {
			return nil, err
		}
	}
	return w, r.Commit()
}

// servePool makes a pool, and does not end.
func servePool(dir string) {
	_, err := makePool(dir, "frontend")
	fmt.Println("ready", err)
	select {}
}

// killedPool leaves a pool whose writer was killed.
func killedPool(t *testing.T, dir string) {
	t.Helper()
	cmd := command()
	cmd.Env = append(os.Environ(), "RINGCACHE_TEST_POOL="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready <nil>\n", line)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
}

const vllmName = "VLLM_OBJECT_STORAGE_SHM_BUFFER_0b5c"

// vllmRing writes a segment as vLLM wrote it, with two chunks.
func vllmRing(t *testing.T, dir string) {
	t.Helper()
	for _, f := range goldentest.Files(t, "ring_images") {
		var scenarios []struct {
			Steps []struct {
				RingMD  [][2]uint64 `json:"ring_md"`
				Segment string
			}
		}
		f.Decode(t, &scenarios)
		for _, st := range scenarios[0].Steps {
			if len(st.RingMD) == 2 && f.Generation(t).DataOffset > 0 {
				require.NoError(t, os.WriteFile(filepath.Join(dir, vllmName), goldentest.Hex(t, st.Segment), 0o600))
				return
			}
		}
	}
	require.Fail(t, "no golden segment has two chunks and a secret")
}

// machine is a daemon at work, a killed frontend's segment and one of vLLM, in one folder.
func machine(t *testing.T) *serving {
	t.Helper()
	s := newServing(t)
	killedPool(t, s.shm)
	vllmRing(t, s.shm)
	s.start()
	c := s.dial()
	put(t, c, "lease-1", "output-1", make([]byte, 100_000))
	put(t, c, "lease-1", "output-2", make([]byte, 3000))
	reserve(t, c, "lease-1", "output-3", make([]byte, 5000))
	return s
}

func TestSegmentCommands(t *testing.T) {
	s := machine(t)
	out, errOut, code := ringcache(t, "ls", "--dir", s.shm)
	require.Zero(t, code, errOut)
	require.Regexp(t, `(?m)^SEGMENT +STATE +OWNER +PID +SIZE +FILL +OBJECTS +READERS +LEASES +AGE$`, out)
	require.Regexp(t, `(?m)^VLLM_\S+ +foreign +- +\? +200 B +\? +2 +\? +\? +\ds$`, out)
	require.Regexp(t, `(?m)^frontend +orphan +frontend +\d+ +256.0 KiB +\d\d\.\d % +3 +0 +0 +\d+s$`, out)
	require.Regexp(t, `(?m)^ringcache +alive +"ringcache serve" +`+fmt.Sprint(s.cmd.Process.Pid)+
		` +1.0 MiB +10.\d % +2 +0 +\d +\d+s$`, out)
	var list []lsSegment
	out, _, code = ringcache(t, "ls", "--json", "--dir", s.shm)
	require.Zero(t, code)
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list, 3)
	require.InDelta(t, float64(list[2].Used)/float64(list[2].Size), list[2].Fill, 1e-9)

	out, errOut, code = ringcache(t, "inspect", "ringcache", "--dir", s.shm)
	require.Zero(t, code, errOut)
	require.Regexp(t, `(?m)^ringcache: alive, pool of tier/1, owner "ringcache serve", pid \d+, made \ds ago$`, out)
	require.Regexp(t, `(?m)^"lease ringcache/\S+/lease-1" +test +`+fmt.Sprint(os.Getpid())+` +\S+ +2 +1 +`, out)
	require.Regexp(t, `(?m)^space/output-1 +in use +97.7 KiB .*"lease ringcache/\S+/lease-1"$`, out)
	require.Regexp(t, `(?m)^space/output-3 +reserved +`, out)
	require.Contains(t, out, "3 objects in chunks of ")
	out, errOut, code = ringcache(t, "inspect", "frontend", "--dir", s.shm, "--limit", "1")
	require.Equal(t, noWriter, code)
	require.Contains(t, errOut, "the last one was killed")
	require.Regexp(t, `(?m)^photo-1 +in use +\S+ KiB +\S+ KiB +0 +1 +\d+s `, out)
	require.NotContains(t, out, "photo-0")
	require.Contains(t, out, "3 objects in chunks of ")
	require.Contains(t, out, "; 1 are shown, --limit 0 shows all")
	out, _, code = ringcache(t, "inspect", "frontend", "--dir", s.shm, "--limit", "0", "--find", "photo-2",
		"--state", "in use")
	require.Equal(t, noWriter, code)
	require.Contains(t, out, "\nphoto-2 ")
	require.NotContains(t, out, "photo-1")
	out, errOut, code = ringcache(t, "inspect", vllmName, "--dir", s.shm)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "foreign, a ring as those of 0.33.0")
	require.Contains(t, out, "2 objects in chunks of ")
	for _, name := range []string{"ringcache", "frontend", vllmName} {
		out, _, _ = ringcache(t, "inspect", name, "--dir", s.shm, "--json")
		var got struct {
			Segment lsSegment
			Holders []inspectHolder
			Objects []inspect.Object
		}
		require.NoError(t, json.Unmarshal([]byte(out), &got), out)
		require.Equal(t, name, got.Segment.Name)
		require.GreaterOrEqual(t, len(got.Objects), 2)
		require.NotNil(t, got.Holders)

		out, _, _ = ringcache(t, "map", name, "--dir", s.shm, "--width", "60", "--rows", "3")
		lines := strings.Split(out, "\n")
		if name != vllmName { // which has four cells
			require.Len(t, lines[1], 60)
		}
		require.Regexp(t, "^[@#+w?.]+$", lines[1])
		out, _, _ = ringcache(t, "map", name, "--dir", s.shm, "--svg")
		wellFormed(t, out)
		out, _, _ = ringcache(t, "map", name, "--dir", s.shm, "--json")
		var m inspect.Map
		require.NoError(t, json.Unmarshal([]byte(out), &m))
		require.NotEmpty(t, m.Cells)
		out, _, code = ringcache(t, "top", name, "--once", "--dir", s.shm)
		require.Contains(t, out, name+": ", code)
		require.Contains(t, out, "objects in chunks of")
	}
	_, errOut, code = ringcache(t, "check", "frontend", "--dir", s.shm)
	require.Zero(t, code, errOut)

	// None, and what is none.
	empty := t.TempDir()
	out, _, code = ringcache(t, "ls", "--dir", empty)
	require.Zero(t, code)
	require.Equal(t, "no segments in "+empty+"\n", out)
	out, _, code = ringcache(t, "ls", "--dir", empty, "--json")
	require.Zero(t, code)
	require.Equal(t, "[]\n", out)
	_, errOut, code = ringcache(t, "ls", "--dir", empty+"/none")
	require.Equal(t, 1, code, errOut)
	for _, args := range [][]string{{"inspect", "none"}, {"map", "none"}, {"top", "none", "--once"}} {
		_, errOut, code = ringcache(t, append(args, "--dir", empty)...)
		require.Equal(t, 1, code)
		require.Contains(t, errOut, "there is no segment none: ringcache ls lists them")
	}
	_, errOut, code = ringcache(t, "top", "--once", "--socket", empty+"/none")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "no daemon listens at")
	require.NoError(t, os.WriteFile(filepath.Join(empty, "cut.ctl"), []byte("x"), 0o600))
	_, errOut, code = ringcache(t, "inspect", "cut", "--dir", empty)
	require.Equal(t, damaged, code, errOut)

	// The daemon has noticed nothing.
	require.Len(t, askOf(t, s).Leases, 1)
	require.Equal(t, int64(2), askOf(t, s).Levels[0].Objects)
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

// TestHostileNames: names and keys that a terminal would obey are shown, and not obeyed.
func TestHostileNames(t *testing.T) {
	const evil = "\x1b]0;pwned\a\x1b[2J<script>&\u202eEVIL\r\n\u009b31m"
	dir := t.TempDir()
	w, err := objstore.CreatePool(objstore.Options{Name: evil, Owner: "own" + evil, Dir: dir, RingSize: 64 << 10,
		MaxObjectSize: 16 << 10, Readers: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.CheckStructure()); require.NoError(t, w.Abandon()) }()
	r, err := w.Begin("request")
	require.NoError(t, err)
	_, err = r.Put("key"+evil, photo(100), objstore.PutOptions{Tenant: evil})
	require.NoError(t, err)
	require.NoError(t, r.Commit())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad"+evil+".ctl"), []byte("x"), 0o600))
	for _, args := range [][]string{
		{"ls"}, {"ls", "--json"}, {"inspect", evil}, {"inspect", evil, "--json"}, {"map", evil},
		{"map", evil, "--svg"}, {"map", evil, "--json"},
		{"top", evil, "--once"}, {"inspect", "bad" + evil}, {"inspect", "none" + evil}, {"check", evil},
		{"doctor", "--shm-dir", dir}, {"doctor", "--json", "--shm-dir", dir},
	} {
		if args[0] != "doctor" {
			args = append(args, "--dir", dir)
		}
		out, errOut, _ := ringcache(t, args...)
		requirePrintable(t, fmt.Sprint(args[0]), out)
		requirePrintable(t, fmt.Sprint(args[0]), errOut)
		require.Contains(t, out+errOut, "EVIL")
		if len(args) > 2 && args[2] == "--svg" {
			wellFormed(t, out)
			require.NotContains(t, out, "<script>")
		}
	}
	out, _, _ := ringcache(t, "complete", "--", "inspect", "--dir", dir, "")
	require.NotContains(t, out, "EVIL", "a shell could not take it over")
}

func requirePrintable(t *testing.T, what, text string) {
	t.Helper()
	for _, line := range strings.Split(text, "\n") {
		require.False(t, strings.ContainsFunc(line, notPrintable), "%s: %q", what, line)
	}
}

// TestTopOfADaemon: on a real terminal it shows levels, sessions and leases, follows what happens, scrolls,
// stops, and leaves the terminal as it was.
func TestTopOfADaemon(t *testing.T) {
	s := machine(t)
	x := onTerminal(t, nil, "top", "--socket", s.socket, "--interval", "100ms")
	x.wait("LEVEL", "memory", "up", "SESSION", "lease-1", "q quit")
	require.Contains(t, x.text(), "\x1b[?1049h", "it has a screen of its own")
	require.Contains(t, x.text(), "\x1b[1m", "the heading is bold")
	c := s.dial()
	for range 5 {
		require.Equal(t, "hit", string(pin(t, c, "zebra", "output-1").Status))
	}
	x.wait("zebra")
	// All is drawn again where the size is another, and else only what has changed.
	x.forget()
	x.resize(10, 100)
	x.wait("1-8 of ", "ringcache")
	x.press("j")
	x.press(" ")
	x.forget()
	x.resize(11, 100)
	x.wait("2-10 of ", "stopped")
	require.NoError(t, s.cmd.Process.Kill())
	s.end()
	x.press(" ")
	x.wait("no daemon listens")
	x.press("q")
	require.Zero(t, x.end())
	<-x.done
	require.Contains(t, x.text(), "\x1b[?1049l", "the screen from before is back")
	require.Contains(t, x.text(), "\x1b[?25h", "the cursor is back")
}

// TestTopOfASegment: also of one that went, and an interrupt ends it.
func TestTopOfASegment(t *testing.T) {
	dir := t.TempDir()
	killedPool(t, dir)
	x := onTerminal(t, []string{"NO_COLOR=1"}, "top", "frontend", "--dir", dir, "--interval", "100ms")
	x.wait("orphan", "photo-1", "! damaged")
	require.NotContains(t, x.text(), "\x1b[1m", "NO_COLOR")
	require.NoError(t, os.Remove(filepath.Join(dir, "frontend.ctl")))
	require.NoError(t, os.Remove(filepath.Join(dir, "frontend")))
	x.wait("there is no segment frontend")
	x.press("\x03")
	require.Zero(t, x.end())
}

// TestStatusWatch: again and again, on a terminal in one place, while the daemon goes and comes.
func TestStatusWatch(t *testing.T) {
	s := machine(t)
	x := onTerminal(t, nil, "serve", "status", "--watch", "--interval", "100ms", "--socket", s.socket)
	x.wait("LEVEL", "lease-1")
	require.Contains(t, x.text(), "\x1b[H", "it begins at the upper left corner each time")
	require.NoError(t, s.cmd.Process.Kill())
	s.end()
	x.wait("it is dead")
	s.start()
	x.forget()
	x.wait("LEVEL", "memory", "up")
	x.press("\x03")
	require.Zero(t, x.end())

	cmd := command("serve", "status", "--watch", "--json", "--interval", "50ms", "--socket", s.socket)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	for range 3 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		var got status
		require.NoError(t, json.Unmarshal([]byte(line), &got))
		require.Equal(t, "memory", got.Levels[0].Name)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_, err = io.Copy(io.Discard, lines)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
}

// TestColoursOnATerminalOnly: and not with NO_COLOR or on a dumb terminal.
func TestColoursOnATerminalOnly(t *testing.T) {
	dir := t.TempDir()
	killedPool(t, dir)
	for _, c := range []struct {
		env  []string
		want bool
	}{{nil, true}, {[]string{"NO_COLOR=1"}, false}, {[]string{"TERM=dumb"}, false}} {
		x := onTerminal(t, c.env, "ls", "--dir", dir)
		require.Zero(t, x.end())
		<-x.done
		require.Contains(t, x.text(), "frontend")
		require.Equal(t, c.want, strings.Contains(x.text(), "\x1b["), "%q: %q", c.env, x.text())
	}
	out, _, code := ringcache(t, "ls", "--dir", dir)
	require.Zero(t, code)
	require.NotContains(t, out, "\x1b")
}
