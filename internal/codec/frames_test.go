package codec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/codec"
)

// payloads reads an array of payloads of one byte each.
func payloads(d *codec.Decoder) (any, error) {
	n, err := d.Array("list")
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for range n {
		b, err := d.Payload("part", 1)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// TestEachFrameHasOneOwner: an array takes its frame, and the frames are all taken.
func TestEachFrameHasOneOwner(t *testing.T) {
	frames := func(doc string) [][]byte { return [][]byte{[]byte(doc), {7}, {8}} }
	got, err := codec.Decode(frames("\x92\x02\x01"), payloads)
	require.NoError(t, err)
	require.Equal(t, [][]byte{{8}, {7}}, got)

	_, err = codec.Decode(frames("\x92\x01\x01"), payloads)
	requireCorrupt(t, err, "part at byte 3: got frame 1 again, want a frame of its own")
	_, err = codec.Decode(frames("\x91\x02"), payloads)
	requireCorrupt(t, err, "frames: got none for frame 1, want a tensor for each")
	_, err = codec.Decode(frames("\x93\x01\x02\x03"), payloads)
	requireCorrupt(t, err, "part at byte 4: got 3, want the index of one of 2 frames")
	_, err = codec.Decode(frames("\x91\xff"), payloads)
	requireCorrupt(t, err, "part at byte 2: got -1, want the index of one of 2 frames")

	got, err = codec.Decode(frames("\x91\x02"), func(d *codec.Decoder) (any, error) {
		d.AnyFrames = true // what is passed over may refer to some
		return payloads(d)
	})
	require.NoError(t, err)
	require.Equal(t, [][]byte{{8}}, got)
}

// TestDecodeLeavesItsFrames: the caller's list is as it was, and what comes out is a
// view with no room behind it.
func TestDecodeLeavesItsFrames(t *testing.T) {
	room := []byte{7, 1, 1}
	frames := [][]byte{[]byte("\x91\x01"), room[:1]}
	got, err := codec.Decode(frames, payloads)
	require.NoError(t, err)
	require.NotNil(t, frames[1])
	view := got.([][]byte)[0]
	require.Same(t, &room[0], &view[0])
	require.Equal(t, 1, cap(view), "append must not run over what lies behind")
	_, err = codec.Decode(frames, payloads)
	require.NoError(t, err, "and so once more")

	doc := []byte("\x91\xd4\x03a")
	got, err = codec.Decode([][]byte{doc}, payloads)
	require.NoError(t, err)
	view = got.([][]byte)[0]
	require.Same(t, &doc[3], &view[0])
	require.Equal(t, 1, cap(view))
}

// TestEmptyFrames: one of ZMQ may be nil, and is a frame all the same.
func TestEmptyFrames(t *testing.T) {
	for _, f := range [][]byte{nil, {}} {
		got, err := codec.Decode([][]byte{[]byte("\x01"), f}, payload(0))
		require.NoError(t, err)
		require.Equal(t, []byte{}, got)
		_, err = codec.Decode([][]byte{[]byte("\xc0"), f}, func(d *codec.Decoder) (any, error) { return d.Nil(), nil })
		requireCorrupt(t, err, "got none for frame 1")
	}
}

// TestPartsShareFrames: a part marks in the list of frames what it took.
func TestPartsShareFrames(t *testing.T) {
	frames := [][]byte{[]byte("\x92\x91\x01\x91\x02"), {7}, {8}}
	got, end, err := codec.DecodePart(frames, 1, payloads)
	require.NoError(t, err)
	require.Equal(t, [][]byte{{7}}, got)
	require.Equal(t, 3, end)
	require.Nil(t, frames[1])
	_, _, err = codec.DecodePart(frames, 1, payloads)
	requireCorrupt(t, err, "part at byte 3: got frame 1 again, want a frame of its own")

	// Within a document the same.
	for doc, want := range map[string]string{
		"\x92\x91\x01\x91\x02": "",
		"\x92\x91\x01\x91\x01": "got frame 1 again",
		"\x92\x91\x01\x91\x03": "got 3, want the index",
		"\x92\x91\x01\x90":     "got none for frame 2",
		"\x92\x91\x01\x01":     "list at byte 3: got an integer, want an array",
	} {
		_, err := codec.Decode([][]byte{[]byte(doc), {7}, {8}}, func(d *codec.Decoder) (any, error) {
			if err := d.ArrayOf(2, "pair"); err != nil {
				return nil, err
			}
			for range 2 {
				err := d.Splice(func(frames [][]byte, at int) (end int, err error) {
					_, end, err = codec.DecodePart(frames, at, payloads)
					return end, err
				})
				if err != nil {
					return nil, err
				}
			}
			return nil, nil
		})
		if want == "" {
			require.NoError(t, err)
		} else {
			requireCorrupt(t, err, want)
		}
	}
}

// TestPartStandsBehindItsValue: whether it could be read or not, up to an error of the
// document itself.
func TestPartStandsBehindItsValue(t *testing.T) {
	doc := []byte("\x93\x93\x01\x02\xa1a\xa1b\x07")
	_, err := codec.Decode([][]byte{doc}, func(d *codec.Decoder) (any, error) {
		require.NoError(t, d.ArrayOf(3, "whole"))
		failure, err := d.Part("first", func() error { _, err := d.Text("first"); return err })
		require.NoError(t, err)
		requireCorrupt(t, failure, "first at byte 1: got an array, want a string")
		failure, err = d.Part("second", func() error { _, err := d.Text("second"); return err })
		require.NoError(t, err)
		require.NoError(t, failure)
		require.Equal(t, len(doc)-1, d.Pos())
		return d.Int("third")
	})
	require.NoError(t, err)

	_, err = codec.DecodeUnguarded([][]byte{[]byte("\x92\xa5ab")}, func(d *codec.Decoder) (any, error) {
		require.NoError(t, d.ArrayOf(2, "whole"))
		_, err := d.Part("first", func() error { _, err := d.Text("first"); return err })
		return nil, err
	})
	requireCorrupt(t, err, "first at byte 1: got msgpackguard: byte 1: declares 5 bytes, 2 are left, want more bytes")

	// A failure in the middle of a value, which has more behind it.
	_, err = codec.Decode([][]byte{[]byte("\x92\x93\x01\xa1x\x02\x07")}, func(d *codec.Decoder) (any, error) {
		require.NoError(t, d.ArrayOf(2, "whole"))
		failure, err := d.Part("first", func() error { _, err := d.Tokens("first"); return err })
		require.NoError(t, err)
		requireCorrupt(t, failure, "first at byte 3: got a string, want an integer")
		return d.Int("second")
	})
	require.NoError(t, err)
}

// TestFailuresAreCharged: a message of a few bytes must not make many errors.
func TestFailuresAreCharged(t *testing.T) {
	const n = 40_000 // in 40 KB: 12 MB of errors, of which 4 MB and a bit are allowed
	doc := append([]byte{0xdd, 0, 0, n >> 8, n & 0xff}, make([]byte, n)...)
	_, err := codec.Decode([][]byte{doc}, func(d *codec.Decoder) (any, error) {
		n, err := d.Array("whole")
		for range n {
			if err != nil {
				break
			}
			_, err = d.Part("one", func() error { _, err := d.Text("one"); return err })
		}
		return nil, err
	})
	requireCorrupt(t, err, "got too many small ones, want values worth their bytes")
}
