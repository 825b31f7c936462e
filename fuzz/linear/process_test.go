package linear_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// childEnv makes the test binary a reader, and contains its options.
const childEnv = "RINGCACHE_LINEAR_READER"

func TestMain(m *testing.M) {
	if o := os.Getenv(childEnv); o != "" {
		if err := serve(o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

type childOptions struct {
	Name, Dir string
	RingSize  int
}

type question struct {
	Key    string
	Handle serde.Address
}

type answer struct {
	Value uint64
	Error string
}

// serve answers questions until the end of the input.
func serve(options string) error {
	var o childOptions
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	r, err := objstore.Open(o.Name, objstore.ReaderOptions{Dir: o.Dir, RingSize: o.RingSize, Readers: 1})
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var q question
		switch err := in.Decode(&q); {
		case errors.Is(err, io.EOF):
			return r.Close()
		case err != nil:
			return err
		}
		var a answer
		if a.Value, err = (mapped{r}).value(q.Key, q.Handle); err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// child is a reader in a process of its own.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func elsewhere(t *scope, ro objstore.ReaderOptions, name string) valueReader {
	options, err := json.Marshal(childOptions{name, ro.Dir, ro.RingSize})
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(options))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := &child{cmd, in, json.NewDecoder(bufio.NewReader(out))}
	t.atEnd(func() { _ = c.Close() })
	return c
}

func (c *child) value(key string, h serde.Address) (uint64, error) {
	if err := json.NewEncoder(c.in).Encode(question{key, h}); err != nil {
		return 0, err
	}
	var a answer
	if err := c.out.Decode(&a); err != nil {
		return 0, err
	}
	if a.Error != "" {
		return 0, errors.New(a.Error)
	}
	return a.Value, nil
}

// Close ends the process, once.
func (c *child) Close() error {
	if c.cmd == nil {
		return nil
	}
	cmd := c.cmd
	c.cmd = nil
	return errors.Join(c.in.Close(), cmd.Wait())
}
