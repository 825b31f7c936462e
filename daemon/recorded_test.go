//go:build linux

package daemon

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/ringcache/ringcache/daemon/wire"
)

// testdata/recorded has what clients of each release have sent to a daemon, byte by byte, and what of the
// answers they went by. Such clients are installed, and nobody can change them any more: a recording is
// never edited and never made anew, also where it looks old. If a change makes TestRecordedClients fail,
// the change breaks installed clients. A release adds recordings of its own clients, see [TestRecord].
var recordings = filepath.Join("testdata", "recorded")

// recording is a file of testdata/recorded.
type recording struct {
	Never  string // why the file is never changed
	Client string
	Steps  []step
}

// step is a request and its answer.
type step struct {
	On   int    // the number of the connection, from 0
	Sent string // the frame, in hexadecimal digits
	// Answer is what the client goes by: the answer may have more, in each of its maps. A text such as
	// "<integer>" or "<text>" stands for any value of the type, and "<integer 1>" for one that is the same
	// wherever it is.
	Answer map[string]any
}

// TestRecordedClients plays what clients of earlier releases have sent against the daemon as it is built
// here.
func TestRecordedClients(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(recordings, "*.json"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 2, "a Go and a Python client; recordings only become more")
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			var r recording
			require.NoError(t, json.Unmarshal(b, &r))
			require.Greater(t, len(r.Steps), 10)
			s := newBed(t, func(b *bed) { b.mo.Size = 16 << 20 })
			conns := map[int]*peer{}
			seen := map[string]any{}
			for i, step := range r.Steps {
				if conns[step.On] == nil {
					conns[step.On] = s.dial()
				}
				frame, err := hex.DecodeString(step.Sent)
				require.NoError(t, err)
				_, err = conns[step.On].conn.Write(frame)
				require.NoError(t, err)
				body, err := conns[step.On].reader.Next()
				require.NoError(t, err, "step %d", i)
				var got any
				require.NoError(t, msgpack.Unmarshal(body, &got))
				require.NoError(t, matches(step.Answer, got, seen), "step %d: %s\nanswer: %v", i, asked(frame), got)
			}
			require.Empty(t, s.server.Leases(), "the client ends its leases")
		})
	}
}

// asked describes a request for people.
func asked(frame []byte) string {
	var v map[string]any
	if err := msgpack.Unmarshal(frame[4:], &v); err != nil {
		return err.Error()
	}
	return fmt.Sprint(v)
}

// matches compares an answer with what a client goes by.
func matches(want, got any, seen map[string]any) error {
	switch want := want.(type) {
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("want a map, got %v", got)
		}
		for k, v := range want {
			if m[k] == nil {
				return fmt.Errorf("%s is missing", k)
			}
			if err := matches(v, m[k], seen); err != nil {
				return fmt.Errorf("%s: %w", k, err)
			}
		}
		return nil
	case []any:
		l, ok := got.([]any)
		if !ok || len(l) != len(want) {
			return fmt.Errorf("want %d elements, got %v", len(want), got)
		}
		for i, v := range want {
			if err := matches(v, l[i], seen); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
		return nil
	}
	text, _ := want.(string)
	if b, ok := got.([]byte); ok {
		got = string(b)
	} else if _, ok := got.(string); !ok {
		n, err := json.Marshal(got)
		if err != nil {
			return err
		}
		var number any
		_ = json.Unmarshal(n, &number) // as numbers are in want
		got = number
	}
	switch {
	case strings.HasPrefix(text, "<"):
		_, isText := got.(string)
		if _, isNumber := got.(float64); !isText && strings.HasPrefix(text, "<text") || !isNumber && strings.HasPrefix(text, "<integer") {
			return fmt.Errorf("want %s, got %v", text, got)
		}
		if before, ok := seen[text]; ok && before != got && strings.Contains(text, " ") {
			return fmt.Errorf("%s was %v, and is %v", text, before, got)
		}
		seen[text] = got
	case want != got:
		return fmt.Errorf("want %v, got %v", want, got)
	}
	return nil
}

// readable makes texts of the notes in an answer.
func readable(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if b, ok := e.([]byte); ok {
				v[k] = string(b)
			}
			readable(e)
		}
	case []any:
		for _, e := range v {
			readable(e)
		}
	}
}

var record = flag.String("record", "", "the name of the recording that TestRecord makes, such as python-1.0.0")

// TestRecord makes a recording of a client, of any language: with -record NAME it prints a socket, waits
// until a program has connected to it, done what is to be recorded and ended its connections, one after the
// other, and writes NAME.json. What the client does not go by, and what differs from run to run, is then
// taken out by hand, before the file is committed.
func TestRecord(t *testing.T) {
	if *record == "" {
		t.Skip("nothing is to be recorded: -record NAME")
	}
	path := filepath.Join(recordings, *record+".json")
	require.NoFileExists(t, path, "a recording is never made anew")
	b := newBed(t, func(b *bed) { b.mo.Size = 16 << 20 })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.socket + "r"})
	require.NoError(t, err)
	defer l.Close()
	fmt.Println("socket:", b.socket+"r", "shared memory:", b.dir)
	r := recording{Never: "Never change this file, and never record it anew: clients that send these bytes are installed.", Client: *record}
	for on := 0; ; on++ {
		conn, err := l.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		require.NoError(t, err)
		to, in := b.dial(), wire.NewReader(conn, wire.MaxRequest)
		for {
			body, err := in.Next()
			if err != nil {
				break // the client has ended it
			}
			frame := append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
			_, err = to.conn.Write(frame)
			require.NoError(t, err)
			answer, err := to.reader.Next()
			require.NoError(t, err)
			s := step{On: on, Sent: hex.EncodeToString(frame)}
			require.NoError(t, msgpack.Unmarshal(answer, &s.Answer))
			readable(s.Answer)
			r.Steps = append(r.Steps, s)
			_, err = conn.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(answer))), answer...))
			require.NoError(t, err)
		}
		require.NoError(t, errors.Join(conn.Close(), to.conn.Close(), l.SetDeadline(time.Now().Add(5*time.Second))))
	}
	out, err := json.MarshalIndent(r, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(recordings, 0o755))
	require.NoError(t, os.WriteFile(path, append(out, '\n'), 0o644))
}
