package linear

import (
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Recorder collects a history. Its methods may be called by any goroutine.
type Recorder struct {
	begin time.Time

	mu      sync.Mutex
	clients int
	history []porcupine.Operation
}

// NewRecorder returns an empty history.
func NewRecorder() *Recorder { return &Recorder{begin: time.Now()} }

// Client returns a new client. A client makes one call at a time.
func (r *Recorder) Client() *Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients++
	return &Client{r: r, id: r.clients - 1}
}

// History returns the calls that have ended.
func (r *Recorder) History() []porcupine.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]porcupine.Operation(nil), r.history...)
}

// Client makes calls that are recorded.
type Client struct {
	r  *Recorder
	id int
}

// Do records a call, with the time at which perform is called and the time at which it has
// returned, and its result. If perform fails the call is not recorded, and Do returns the error: then it is
// not known whether the call took effect, and the history is of no use.
func (c *Client) Do(call any, perform func() (result any, err error)) error {
	called := time.Since(c.r.begin) // monotonic
	result, err := perform()
	returned := time.Since(c.r.begin)
	if err != nil {
		return err
	}
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.history = append(c.r.history, porcupine.Operation{ClientId: c.id, Input: call, Call: int64(called),
		Output: result, Return: int64(returned)})
	return nil
}
