package objstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/fault"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

func startChild(t *testing.T, o killOrder) *fault.Process {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	order, err := json.Marshal(o)
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), killEnv+"="+string(order))
	return fault.Start(t, cmd)
}

// killChild is a child process.
func killChild(o killOrder) {
	hits := map[string]int{} // children come to failpoints with one goroutine
	if failpoint.Enabled {   // only the matrix needs them
		failpoint.Set(func(name string) {
			if hits[name]++; name == o.Place && hits[name] == o.Nth {
				failpoint.Die()
			}
		})
	}
	var err error
	switch o.Role {
	case "writer":
		err = writerChild(o)
	case "random":
		err = randomChild(o)
	case "creator":
		err = creatorChild(o)
	case "worker":
		err = workerChild(o)
	case "reader":
		err = readerChild(o)
	default:
		err = fmt.Errorf("no role %q", o.Role)
	}
	if err != nil {
		say("E %v", err)
		os.Exit(1)
	}
	for name, n := range hits {
		say("H %s %d", name, n)
	}
}

// say prints a line for the parent at once: what was printed before a kill arrives.
func say(format string, args ...any) {
	if _, err := os.Stdout.Write(fmt.Appendf(nil, format+"\n", args...)); err != nil {
		os.Exit(1) // the parent is gone
	}
}

// killOptions are those of the segments whose writers are killed: both the bytes
// and the entries of the sidecar are short.
func killOptions(name string, rereads bool) Options {
	return Options{
		Name: name, RingSize: 1 << 20, MaxObjectSize: 80 << 10, Readers: 1, Owner: "kill",
		Rereads: rereads, TrustCounts: !rereads, QuarantineTTL: -1, MaxObjects: 150, ReaderSlots: 8,
	}
}

func killReaderOptions(count bool) ReaderOptions {
	return ReaderOptions{RingSize: 1 << 20, Readers: 1, SidecarLock: count, LockTimeout: time.Minute}
}

// killHandle is a handle and what it must lead to: the bytes are a function of
// the key, the length, and a number that no other object has.
type killHandle struct {
	key   string
	h     serde.Address
	nonce uint64
	n     int
}

func (h killHandle) String() string {
	return fmt.Sprintf("%s %d %d %x %d %d", h.key, h.h.ID, h.h.Address, h.h.Signature[:], h.nonce, h.n)
}

func parseHandle(s string) (h killHandle, err error) {
	var sig string
	if _, err := fmt.Sscanf(s, "%s %d %d %s %d %d", &h.key, &h.h.ID, &h.h.Address, &sig, &h.nonce, &h.n); err != nil {
		return h, fmt.Errorf("handle %q: %w", s, err)
	}
	b, err := hex.DecodeString(sig)
	if err != nil || len(b) != len(h.h.Signature) {
		return h, fmt.Errorf("handle %q: no signature: %w", s, err)
	}
	h.h.Signature = serde.Signature(b)
	return h, nil
}

func killNote(nonce uint64, n int) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, nonce), uint64(n))
}

// killObjects returns the handles of all objects of a pool, by id, from what it has noted
// of them, and the ids of those that have a key.
func killObjects(w *writer) (all map[uint32]killHandle, index map[string]uint32, err error) {
	all, index = map[uint32]killHandle{}, map[string]uint32{}
	_, closed := w.pool.bytesStore.Inspect(func(o *shmstore.Object, state shmstore.ObjectState) {
		if len(o.Note()) != 16 {
			err = errors.Join(err, fmt.Errorf("key %q has a note of %d bytes", o.Key(), len(o.Note())))
			return
		}
		n := binary.LittleEndian.Uint64(o.Note()[8:])
		all[o.Handle().ID] = killHandle{o.Key(), w.pool.handle(o), binary.LittleEndian.Uint64(o.Note()), int(n)}
		if state.Indexed {
			index[o.Key()] = o.Handle().ID
		}
	})
	return all, index, errors.Join(err, closed)
}

func (h killHandle) bytes() []byte {
	b := make([]byte, h.n)
	_, _ = rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "%s %d %d", h.key, h.nonce, h.n))).Read(b)
	return b
}

// killItem is a value of n bytes in two tensors, with data or without.
func killItem(n int, data []byte) *serde.Item {
	it := &serde.Item{Modality: "image"}
	at := 0
	for i, n := range []int{n - n/3, n / 3} {
		if n == 0 {
			continue
		}
		t := &serde.Tensor{DType: "uint8", Shape: []int{n}}
		if data != nil {
			t.Data = data[at : at+n : at+n]
		}
		it.Elems = append(it.Elems, serde.Elem{Key: string(rune('x' + i)), Data: t, Field: serde.Field{Kind: serde.Batched}})
		at += n
	}
	return it
}

// verify reports whether a value is what the handle must lead to.
func (h killHandle) verify(v serde.Value) error {
	it, ok := v.(*serde.Item)
	if !ok {
		return fmt.Errorf("%v leads to a %T", h, v)
	}
	var got []byte
	for _, e := range it.Elems {
		got = append(got, e.Data.(*serde.Tensor).Data...)
	}
	if !bytes.Equal(got, h.bytes()) {
		return fmt.Errorf("%v leads to wrong bytes (%d of them)", h, len(got))
	}
	return nil
}

// look reads through a handle and compares the bytes. Errors of the reader are
// in the answer as they are.
func (h killHandle) look(r *Reader) error {
	v, err := r.Get(h.key, h.h)
	if err != nil {
		return err
	}
	return errors.Join(h.verify(v.Value()), v.Check(), v.Release())
}

// checkAdopted looks at everything that a writer has adopted, through a reader,
// and returns its index.
func checkAdopted(w *writer, r *Reader) (index map[string]uint32, err error) {
	if err := w.CheckStructure(); err != nil {
		return nil, err
	}
	all, index, err := killObjects(w)
	st, e := w.Stats()
	if err = errors.Join(err, e); err == nil && len(index) != st.Objects {
		err = fmt.Errorf("%d keys for %d in the index", len(index), st.Objects)
	}
	for _, h := range all {
		err = errors.Join(err, h.look(r))
	}
	return index, err
}
