package wire

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/internal/wiredoc"
)

var updatePage = flag.Bool("update-page", false, "TestPage writes the frames of docs/daemon.md anew, from the messages above them")

var pagePath = filepath.Join("..", "..", "docs", "daemon.md")

func page(t *testing.T) (text string, examples []wiredoc.Example) {
	t.Helper()
	b, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	examples, err = wiredoc.Parse(string(b))
	require.NoError(t, err)
	require.Greater(t, len(examples), 25)
	return string(b), examples
}

// packJSON writes a value as MessagePack, in the order of its keys. Notes are bytes.
func packJSON(t *testing.T, d *json.Decoder, b []byte, key string) []byte {
	token, err := d.Token()
	require.NoError(t, err)
	switch v := token.(type) {
	case json.Delim:
		var inner []byte
		n := 0
		for ; d.More(); n++ {
			k := key
			if v == '{' {
				name, err := d.Token()
				require.NoError(t, err)
				k = name.(string)
				inner = msgp.AppendString(inner, k)
			}
			inner = packJSON(t, d, inner, k)
		}
		_, err := d.Token()
		require.NoError(t, err)
		if v == '{' {
			return append(msgp.AppendMapHeader(b, uint32(n)), inner...)
		}
		return append(msgp.AppendArrayHeader(b, uint32(n)), inner...)
	case string:
		if key == "note" {
			return msgp.AppendBytes(b, []byte(v))
		}
		return msgp.AppendString(b, v)
	case bool:
		return msgp.AppendBool(b, v)
	case json.Number:
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return msgp.AppendUint64(b, n)
		}
		n, err := v.Int64()
		require.NoError(t, err)
		return msgp.AppendInt64(b, n)
	}
	require.Fail(t, "no value of a message", "%v", token)
	return nil
}

// frameOfJSON returns the frame of an example's message.
func frameOfJSON(t *testing.T, text string) []byte {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return frameOf(packJSON(t, d, nil, ""))
}

// TestPage: each example of docs/daemon.md has the bytes of its message, which are those that we write, and
// read as that message.
func TestPage(t *testing.T) {
	text, examples := page(t)
	if *updatePage {
		lines := strings.Split(text, "\n")
		for _, e := range slices.Backward(examples) {
			if frame := frameOfJSON(t, e.JSON); !bytes.Equal(frame, e.Frame) {
				lines = slices.Replace(lines, e.First-1, e.Last-1, hexLines(frame)...)
			}
		}
		require.NoError(t, os.WriteFile(pagePath, []byte(strings.Join(lines, "\n")), 0o644))
		_, examples = page(t)
	}
	for i, e := range examples {
		t.Run(fmt.Sprintf("line %d", e.Line), func(t *testing.T) {
			frame := frameOfJSON(t, e.JSON)
			require.Equal(t, frame, e.Frame, "the frame of the message; -update-page writes it")
			body := frame[header:]
			typ := reflect.TypeFor[Reply]()
			if strings.HasPrefix(e.Kind, wiredoc.Request) {
				typ = reflect.TypeFor[Request]()
			}
			message := general(t, body, typ)
			switch e.Kind {
			case wiredoc.Request:
				var q Request
				require.NoError(t, DecodeRequest(body, &q))
				require.Equal(t, message, tree(reflect.ValueOf(q)))
				again, err := AppendRequest(nil, &q)
				require.NoError(t, err)
				require.Equal(t, frame, again)
			case wiredoc.Refused:
				var q Request
				var bad *Error
				require.ErrorAs(t, DecodeRequest(body, &q), &bad)
				answer, err := AppendReply(nil, &Reply{ID: q.ID, Error: bad})
				require.NoError(t, err)
				require.Equal(t, examples[i+1].Frame, answer, "the error on the page is ours")
			default:
				var p Reply
				require.NoError(t, DecodeReply(body, &p))
				require.Equal(t, message, tree(reflect.ValueOf(p)))
				again, err := AppendReply(nil, &p)
				require.NoError(t, err)
				require.Equal(t, frame, again)
				if before := examples[max(i-1, 0)]; e.Kind == wiredoc.Reply {
					require.Contains(t, before.Kind, wiredoc.Request)
					require.Equal(t, p.ID, idOf(t, before.Frame))
				}
			}
		})
	}
}

func idOf(t *testing.T, frame []byte) uint64 {
	var q Request
	_ = DecodeRequest(frame[header:], &q) // of one that is refused the ID is known, too
	require.NotZero(t, q.ID)
	return q.ID
}

// hexLines returns a frame as lines: its length, and the body.
func hexLines(frame []byte) []string {
	out := []string{fmt.Sprintf("%x", frame[:header])}
	for part := range slices.Chunk(frame[header:], 48) {
		out = append(out, fmt.Sprintf("%x", part))
	}
	return out
}

// TestPageHasEveryWord: the page explains every op, status, kind of error, and field, and not just in the table of all
// fields, which is generated.
func TestPageHasEveryWord(t *testing.T) {
	text, _ := page(t)
	text, _, found := strings.Cut(text, "### All fields")
	require.True(t, found)
	var missing []string
	look := func(word string) {
		if !strings.Contains(text, "`"+word+"`") {
			missing = append(missing, word)
		}
	}
	for _, o := range allOp {
		look(string(o))
	}
	for _, s := range allStatus {
		look(string(s))
	}
	for _, k := range allKind {
		look(string(k))
	}
	for _, v := range []any{Request{}, fingerprint{}, Object{}, Reply{}, Error{}, Segment{}, Limits{}, Item{}, State{}, Level{}, Lease{}, Use{}, ClientState{}} {
		for i := range reflect.TypeOf(v).NumField() {
			key, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("msg"), ",")
			look(key)
		}
	}
	require.Empty(t, missing)
	// The limits, in words.
	for _, words := range []string{"8 to 64 ASCII letters", "1 to 128 bytes without control", "1 to 100 bytes without control", "1 to 1 MiB in a request, 1 to 8 MiB in a reply", "at most 1024 maps", "at most 16 deep"} {
		require.Contains(t, text, words)
	}
	require.Equal(t, []int{8, 64, 128, 100, 1 << 20, 8 << 20, 1024, 16}, []int{minSession, maxSession, maxLease, MaxClient, MaxRequest, MaxReply, MaxNames, maxDepth})
}

// TestPageHasEveryForm: the table of operations says which fields each of them needs and may have.
func TestPageHasEveryForm(t *testing.T) {
	text, _ := page(t)
	fields := func(cell string) (s set) {
		for i, word := range strings.Split(cell, "`") {
			if i%2 != 0 {
				n := slices.Index(requestKeys[:], word)
				require.GreaterOrEqual(t, n, 0, word)
				s.when(n, true)
			}
		}
		return s
	}
	_, table, found := strings.Cut(text, "| op | needed | optional |")
	require.True(t, found)
	rows := 0
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			break
		}
		cells = cells[1:]
		op := Op(strings.Trim(cells[0], "` "))
		f, ok := forms[op]
		require.True(t, ok, line)
		needed, optional := fields(cells[1]), fields(strings.ReplaceAll(cells[2], "`keep`, and with it", "`keep`"))
		if op == Release { // one or the other
			needed, optional = 0, needed
		}
		require.Equal(t, f, form{needed, optional}, line)
		rows++
	}
	require.Equal(t, len(allOp), rows)
}
