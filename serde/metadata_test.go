package serde

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/corpus"
)

func metadataCases() []Metadata {
	cases := []Metadata{{typePickle, 0, nil}, {typePickle, 21, nil}, {typeItem, 0, []int64{}}, {"", 1, []int64{1}}, {strings.Repeat("n", 255), 1, nil}, {strings.Repeat("n", 256), 1, nil}, {"é中", 1, nil}}
	for _, n := range []int64{0, 1, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 39, 1 << 40, 1<<47 - 1, 1 << 62, 1<<63 - 1} {
		cases = append(cases, Metadata{typePickle, n, nil}, Metadata{typeItem, n, []int64{n}})
	}
	// Around the batches of 1000 and the frames of 64 KiB.
	for _, k := range []int{2, 999, 1000, 1001, 2000, 2001, 13000, 21800, 21900, 33000, 65600} {
		for _, v := range []int64{7, 256, 70000} {
			m := Metadata{Type: typeItem, Lens: make([]int64, k)}
			for i := range m.Lens {
				m.Lens[i] = v
			}
			m.Lens[0] = 7 * int64(k) // a document that can refer to the others
			m.NBytes = m.Lens[0] + v*int64(k-1)
			cases = append(cases, m)
		}
	}
	return cases
}

// TestMetadataAgainstCPython compares with pickle.dumps, and lets pickle.loads
// read both forms that are accepted.
func TestMetadataAgainstCPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on PATH")
	}
	cases := metadataCases()
	var in bytes.Buffer
	for _, m := range cases {
		lens := "None"
		if m.Lens != nil {
			lens = "[" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(m.Lens)), ","), "[]") + "]"
		}
		fmt.Fprintf(&in, "%s %d %s %x\n", hex.EncodeToString([]byte(m.Type))+".", m.NBytes, lens, AppendMetadata(nil, m))
	}
	cmd := exec.Command(python, "-c", `
import pickle, sys
from ast import literal_eval
for line in sys.stdin:
    name, n, lens, got = line.split()
    v = (bytes.fromhex(name[:-1]).decode(), int(n), literal_eval(lens))
    want = pickle.dumps(v, protocol=pickle.HIGHEST_PROTOCOL)
    assert pickle.HIGHEST_PROTOCOL == 5
    assert pickle.loads(bytes.fromhex(got)) == v, v
    print(want.hex())
`)
	cmd.Stdin = &in
	out, err := cmd.Output()
	if ee, ok := err.(*exec.ExitError); ok {
		t.Fatalf("%v: %s", err, ee.Stderr)
	}
	require.NoError(t, err)
	lines := strings.Fields(string(out))
	require.Len(t, lines, len(cases))
	for i, m := range cases {
		got := hex.EncodeToString(AppendMetadata(nil, m))
		require.True(t, lines[i] == got, "case %d: %.40s %d, %d lengths", i, m.Type, m.NBytes, len(m.Lens))
		back, n, err := ParseMetadata(unhex(t, lines[i]))
		require.NoError(t, err)
		require.Equal(t, len(got)/2, n)
		require.Equal(t, m, back)
	}
	t.Logf("%d pickles equal to CPython's", len(cases))
}

// What another pickler could write is refused, not guessed.
func TestMetadataRefuses(t *testing.T) {
	for name, c := range map[string]struct{ pickle, text string }{
		"protocol 4":       {"\x80\x04\x8c\x05bytes\x94K\x01N\x87\x94.", "at byte 1: got 4, want pickle protocol 5 or 2"},
		"protocol 0":       {"(Vbytes\np0\nI1\nNtp1\n.", "at byte 0: got 0x28, want opcode 0x80"},
		"global":           {"\x80\x05cos\nsystem\n.", "at byte 2: got opcode 0x63, want a type name"},
		"reduce":           {"\x80\x05\x8c\x05bytes\x94K\x01NR.", "at byte 13: got 0x52, want opcode 0x87"},
		"bool":             {"\x80\x05\x8c\x05bytes\x94\x88N\x87\x94.", "at byte 10: got opcode 0x88, want an integer"},
		"negative":         {"\x80\x05\x8c\x05bytes\x94J\xff\xff\xff\xffN\x87\x94.", "at byte 15: got -1, want a length that is not negative"},
		"negative long":    {"\x80\x05\x8c\x05bytes\x94\x8a\x01\xffN\x87\x94.", "at byte 13: got -1, want a length that is not negative"},
		"long of 0":        {"\x80\x05\x8c\x05bytes\x94\x8a\x00N\x87\x94.", "at byte 12: got 0, want an integer of 1 to 8 bytes"},
		"long of 9":        {"\x80\x05\x8c\x05bytes\x94\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00N\x87\x94.", "at byte 12: got 9, want an integer of 1 to 8 bytes"},
		"no memo":          {"\x80\x05\x8c\x05bytesK\x01N\x87\x94.", "at byte 9: got 0x4b, want opcode 0x94"},
		"pair":             {"\x80\x05\x8c\x05bytes\x94K\x01\x86\x94.", "at byte 12: got opcode 0x86, want a list or None"},
		"sum":              {"\x80\x05\x8c\x05bytes\x94K\x01]\x94K\x02a\x87\x94.", "at byte 16: got 2, want a frame of at most the 1 bytes of all"},
		"sum overflow":     {"\x80\x05\x8c\x05bytes\x94K\x00]\x94(" + strings.Repeat("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", 2) + "K\x02e\x87\x94.", "at byte 25: got 9223372036854775807, want a frame of at most the 0 bytes of all"},
		"name not UTF-8":   {"\x80\x05\x8c\x01\xff\x94K\x01N\x87\x94.", "at byte 5: got \"\\xff\", want a type name in UTF-8"},
		"open list":        {"\x80\x05\x8c\x05bytes\x94K\x01]\x94(K\x01", "at byte 17: got more, want at most the 0 frames that a document of 1 bytes can refer to"},
		"frame too long":   {"\x80\x05\x95\xff\x00\x00\x00\x00\x00\x00\x00\x8c\x05bytes\x94K\x01N\x87\x94.", "at byte 11: got 255, want a frame of 1 to 14 bytes"},
		"frame of 0":       {"\x80\x05\x95\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x05bytes\x94K\x01N\x87\x94.", "at byte 11: got 0, want a frame of 1 to 14 bytes"},
		"frame cuts":       {"\x80\x05\x95\x04\x00\x00\x00\x00\x00\x00\x00\x8c\x05bytes\x94K\x01N\x87\x94.", "at byte 13: got 2, want 5 more bytes"},
		"frame goes on":    {"\x80\x05\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05bytes\x94K\x01N\x87\x94.zzzz", "at byte 25: got 2 more bytes, want the end of the frame"},
		"rust with None":   {"\x80\x02(\x8c\x05bytesK\x01Nt.", "at byte 12: got opcode 0x4e, want a list or None"},
		"rust with tuple3": {"\x80\x02(\x8c\x05bytesK\x01]\x87.", "at byte 13: got 0x87, want opcode 0x74"},
		"rust with frame":  {"\x80\x02(\x95\x0c\x00\x00\x00\x00\x00\x00\x00\x8c\x05bytesK\x01]t.", "at byte 3: got opcode 0x95, want a type name"},
		"long name":        {"\x80\x05X\xff\xff\xff\xffabc", "at byte 7: got one of 4294967295 bytes, want a name inside the pickle"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := ParseMetadata([]byte(c.pickle))
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, c.text)
		})
	}
	for name, p := range map[string]string{
		"no frame":         "\x80\x05\x8c\x05bytes\x94K\x01N\x87\x94.",
		"rust, empty list": "\x80\x02(\x8c\x05bytesK\x00]t.",
		"wide integers":    "\x80\x05\x8c\x05bytes\x94\x8a\x08\x01\x00\x00\x00\x00\x00\x00\x00]\x94J\x01\x00\x00\x00a\x87\x94.",
	} {
		_, n, err := ParseMetadata([]byte(p + "tail"))
		require.NoError(t, err, name)
		require.Equal(t, len(p), n, name)
	}
}

func FuzzParseMetadata(f *testing.F) {
	corpus.Add(f, "metadata")
	f.Add(AppendMetadata(nil, Metadata{typeItem, 560, []int64{48, 512}}))
	f.Add(AppendMetadata(nil, Metadata{typePickle, 21, nil}))
	f.Add(AppendMetadata(nil, Metadata{typeTensor, 1 << 33, []int64{1 << 33}}))
	f.Add([]byte("\x80\x02(\x8c\x06TensorJ0\x02\x00\x00](K0J\x00\x02\x00\x00et."))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, n, err := ParseMetadata(b)
		if err != nil {
			typed(t, err)
			return
		}
		if n > len(b) || m.NBytes < 0 || len(m.Lens) > n {
			t.Fatalf("%d of %d bytes: %+v", n, len(b), m)
		}
		checkSums(t, m)
		back, _, err := ParseMetadata(AppendMetadata(nil, m))
		if err != nil {
			t.Fatal(err)
		}
		require.Equal(t, m, back)
	})
}
