// Command embedding puts photos into shared memory, where a Python process reads them in place.
// docs/embedding.md describes both.
package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg"
	_ "image/png"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

//go:embed reader.py
var program string

// setup is the first line to the reader: what both sides must agree on.
type setup struct {
	Segment    string `json:"segment"`
	Generation string `json:"generation"`
	Readers    int    `json:"readers"`
}

// question is every other line to the reader: a handle, and what is expected there.
type question struct {
	Key       string          `json:"key"`
	Address   uint64          `json:"address"`
	ID        uint32          `json:"id"`
	Signature serde.Signature `json:"signature"`
	SHA256    string          `json:"sha256"`
}

// answer is a line from the reader.
type answer struct {
	Shape []int   `json:"shape"`
	Mean  float64 `json:"mean"`
	Same  bool    `json:"same"` // the bytes are those of SHA256
}

func main() {
	python := flag.String("python", "python3", "interpreter that has the package ringcache")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: embedding [--python PYTHON] PHOTO...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *python, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "embedding:", err)
		stop()
		os.Exit(1)
	}
}

// run sends one request for each photo.
func run(ctx context.Context, python string, photos []string) (err error) {
	gen, err := pycompat.Lookup("0.33.0")
	if err != nil {
		return err
	}
	store, err := objstore.CreatePool(objstore.Options{
		Name:        fmt.Sprintf("ringcache-embedding-%d", os.Getpid()),
		RingSize:    64 << 20,
		Generation:  gen,
		Readers:     1,
		TrustCounts: true, // a reader gets each handle once
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Abandon()) }() // removes the segment, whatever is open; nothing after Shutdown

	r, err := start(ctx, python, setup{store.Name(), gen.Version, 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.end()) }() // before Abandon

	sums := map[string]string{}
	for i, photo := range photos {
		if err := request(store, r, sums, fmt.Sprint("request-", i+1), photo); err != nil {
			return err
		}
	}
	return store.Shutdown(ctx)
}

// request shows a photo to the reader.
func request(store *objstore.Pool, r *reader, sums map[string]string, id, photo string) error {
	req, err := store.Begin(id) // what it uses stays until it ends
	if err != nil {
		return err
	}
	defer req.Rollback() // nothing after Commit

	from := "in the segment already"
	handle, err := req.Lookup(photo)
	if errors.Is(err, objstore.ErrNotFound) {
		from = "decoded into the segment"
		handle, sums[photo], err = put(req, photo)
	}
	if err != nil {
		return err
	}
	if err := req.Commit(); err != nil { // the handle is about to be sent
		return err
	}
	a, err := r.ask(question{photo, handle.Address, handle.ID, handle.Signature, sums[photo]})
	if err != nil {
		req.Abort() // the reader may still look
		return err
	}
	req.Finish() // the reader is done
	if !a.Same {
		return fmt.Errorf("%s: the reader saw other bytes", photo)
	}
	fmt.Printf("%s: %s: %s; the reader saw %d, mean %.2f\n", id, photo, from, a.Shape, a.Mean)
	return nil
}

// put decodes a photo to where it will be read, and returns its handle and the checksum of its bytes.
func put(req objstore.Request, photo string) (serde.Address, string, error) {
	fail := func(err error) (serde.Address, string, error) { return serde.Address{}, "", err }
	f, err := os.Open(photo)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	img, _, err := image.Decode(f)
	if err != nil {
		return fail(fmt.Errorf("%s: %w", photo, err))
	}
	b := img.Bounds()
	res, err := req.Reserve(photo, &serde.Item{Elems: []serde.Elem{{
		Key:  "pixel_values",
		Data: &serde.Tensor{DType: "uint8", Shape: []int{b.Dy(), b.Dx(), 3}}, // no data yet
	}}}, objstore.PutOptions{})
	if err != nil {
		return fail(err)
	}
	defer res.Discard() // nothing after Commit
	pixels := res.Tensor("pixel_values")
	i := 0
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
			i += copy(pixels[i:], []byte{c.R, c.G, c.B})
		}
	}
	sum := sha256.Sum256(pixels)
	handle, err := res.Commit() // pixels must not be used any more
	return handle, hex.EncodeToString(sum[:]), err
}

// reader is the Python process.
type reader struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func start(ctx context.Context, python string, s setup) (*reader, error) {
	cmd := exec.CommandContext(ctx, python, "-c", program) // ends with ctx at the latest
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &reader{cmd, in, json.NewDecoder(out)}
	if err := json.NewEncoder(in).Encode(s); err != nil {
		return nil, errors.Join(fmt.Errorf("the reader: %w", err), r.end())
	}
	return r, nil
}

func (r *reader) ask(q question) (answer, error) {
	var a answer
	err := json.NewEncoder(r.in).Encode(q)
	if err == nil {
		err = r.out.Decode(&a)
	}
	if err != nil {
		return a, fmt.Errorf("the reader does not answer: %w", err)
	}
	return a, nil
}

// end lets the reader come to the end of its input, and waits for it.
func (r *reader) end() error { return errors.Join(r.in.Close(), r.cmd.Wait()) }
