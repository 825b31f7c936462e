package resp

import (
	"errors"
	"io"
	"strings"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// The Redis connector of LMCache (lmcache/v1/storage_backend/connector/redis_connector.py) keeps an object
// under two keys. It asks EXISTS of the second one, and then reads both.
const (
	suffixBytes    = "kv_bytes"
	suffixMetadata = "metadata"
)

// otherHalf returns the name of the bytes of a name of metadata, and whether it is one.
func otherHalf(name string) (string, bool) {
	stem, ok := strings.CutSuffix(name, suffixMetadata)
	return stem + suffixBytes, ok
}

// exists counts which objects are there, and pins them.
func (c *conn) exists(n int64) error {
	c.asked = true
	var found int64
	for i := range n {
		if err := c.waitAgain(i); err != nil {
			return err
		}
		c.words.cut(1)
		kept, err := c.words.read(&c.reader, c.mostOf())
		if err != nil {
			return err
		}
		if kept && c.affirm(c.words.at(1)) {
			found++
		}
	}
	c.int(found)
	return nil
}

// waitAgain gives the client time for key i, since looking at those before it may have taken long.
func (c *conn) waitAgain(i int64) error {
	if i == 0 {
		return nil
	}
	return c.wait()
}

// affirm reports whether an object is there, and pins it for a GET that follows.
func (c *conn) affirm(name []byte) bool {
	k, ok := c.key(name)
	if !ok || !c.pin(k) {
		return false
	}
	if other, ok := otherHalf(k.Name); ok {
		c.pin(tier.Key{Space: k.Space, Name: other}) // the client asks only for the one that it stores last
	}
	return true
}

// pin pins an object for a while. It reports whether the object is there.
func (c *conn) pin(k tier.Key) bool {
	p, err := c.store.Pin(c.server.ctx, k)
	if errors.Is(err, tier.ErrFull) && c.server.pins.dropOldest() {
		p, err = c.store.Pin(c.server.ctx, k)
	}
	if err != nil {
		return false
	}
	defer c.store.Unpin(k)
	if !c.server.pins.add(k, time.Now()) {
		return false // what can't be relied on is not there
	}
	if c.plain {
		c.server.affirmed.add(k.Name, p.Object.Size)
	}
	return true
}

func (c *conn) get() error { return c.send(c.words.at(1)) }

func (c *conn) mget() error {
	c.array(c.words.len() - 1)
	for i := 1; i < c.words.len(); i++ {
		if err := c.send(c.words.at(i)); err != nil {
			return err
		}
	}
	return nil
}

// send answers with an object, whose pin for this answer ends then.
func (c *conn) send(name []byte) error {
	k, ok := c.key(name)
	if !ok {
		c.null()
		return nil
	}
	c.server.readers.add(k)
	defer c.server.readers.remove(k)
	err := c.store.Get(c.server.ctx, k, c.value.send)
	size, known := c.server.affirmed.size(k.Name)
	known = known && c.plain && c.asked
	if err != nil && known && c.stored(k) { // it was being replaced
		err = c.store.Get(c.server.ctx, k, c.value.send)
	}
	switch {
	case err == nil:
		c.server.pins.drop(k)
		return c.value.err
	case known:
		// LMCache's native client has been told that it is there, and would wait for ever behind a nil.
		c.server.counts.lost.Add(1)
		c.server.lost.Warn(c.server.o.Logger, "resp: an object is gone that a client was told is there",
			"object", k, "error", err)
		c.padded(headerLen(size))
	default:
		c.null()
	}
	c.server.counts.misses.Add(1)
	return nil
}

// stored waits for whoever is storing an object. It reports whether there was anybody.
func (c *conn) stored(k tier.Key) bool {
	ctx, cancel := c.patient()
	defer cancel()
	return c.server.writers.wait(ctx, k)
}

func (c *conn) strlen() error {
	k, ok := c.key(c.words.at(1))
	if !ok {
		c.int(0)
		return nil
	}
	p, err := c.store.Pin(c.server.ctx, k)
	if err != nil {
		c.int(0)
		return nil
	}
	c.store.Unpin(k)
	c.int(p.Object.Size)
	return nil
}

// errBusy is why an object can't be deleted.
var errBusy = errors.New("the object is being read by others; ask again later")

// del deletes objects.
func (c *conn) del(n int64) error {
	var deleted int64
	var why error
	for i := range n {
		if err := c.waitAgain(i); err != nil {
			return err
		}
		c.words.cut(1)
		kept, err := c.words.read(&c.reader, c.mostOf())
		if err != nil {
			return err
		}
		if !kept {
			continue
		}
		switch err := c.remove(c.words.at(1)); {
		case err == nil:
			deleted++
		case !isAbsent(err):
			why = err
		}
	}
	switch {
	case why == nil:
		c.int(deleted)
	case c.plain && n == 1:
		c.padded(len(":1\r\n"))
	default:
		c.error("ERR %v", why)
	}
	return nil
}

// isAbsent reports whether no level has an object.
func isAbsent(err error) bool {
	return errors.Is(err, tier.ErrNotFound) && !errors.Is(err, tier.ErrUnavailable)
}

// remove deletes an object, after those who read it now. The error is tier.ErrNotFound if it is not there.
func (c *conn) remove(name []byte) error {
	k, ok := c.key(name)
	if !ok {
		return tier.ErrNotFound
	}
	ctx, cancel := c.patient()
	defer cancel()
	for range tries {
		c.server.pins.drop(k)
		switch err := c.store.Delete(ctx, k); {
		case !errors.Is(err, tier.ErrInUse):
			return err
		case !c.server.readers.wait(ctx, k) && !c.server.writers.wait(ctx, k):
			time.Sleep(time.Millisecond) // another protocol, or one that is about to end
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errBusy
}

// tries is how often a command tries again what others prevent.
const tries = 64

// flush deletes all objects.
func (c *conn) flush() error {
	s := c.server
	switch {
	case !s.o.Flush:
		c.error("NOPERM the server does not allow %s", c.word(0))
		return nil
	case c.words.len() == 2 && c.word(1) != "SYNC" && c.word(1) != "ASYNC":
		c.error("ERR syntax error")
		return nil
	}
	s.pins.expire(time.Now().Add(time.Hour)) // all
	var why error
	for o, err := range s.o.Store.List(s.ctx, s.o.Space) {
		if err == nil {
			err = c.remove([]byte(o.Name))
		}
		if err != nil && !isAbsent(err) {
			why = err
		}
	}
	if why != nil {
		c.error("ERR not all objects are deleted: %v", why)
		return nil
	}
	c.ok()
	return nil
}

// set answers SET key value. Options are refused: objects have no time to live, and LMCache's clients send none.
func (c *conn) set(n int64) error {
	kept, err := c.words.read(&c.reader, c.mostOf())
	if err != nil {
		return err
	}
	size, err := c.length(c.mostOf())
	if err != nil {
		return err
	}
	k, ok := c.key(c.words.at(c.words.len() - 1))
	body := &body{reader: &c.reader, left: size}
	var why error
	switch {
	case !kept || !ok:
		why = errors.New("a key has 1 to 1024 bytes, none of which is zero")
	case n > 2:
		why = errors.New("options of SET are not supported: objects have no time to live, and are evicted")
	default:
		why = c.put(k, size, body)
	}
	if err := body.rest(); err != nil { // of the connection
		return err
	}
	if err := c.skipArgs(n-2, c.mostOf()); err != nil {
		return err
	}
	if why == nil {
		c.server.counts.stored.Add(1)
		c.ok()
		return nil
	}
	c.notStored(k, why)
	return nil
}

// put stores a value.
func (c *conn) put(k tier.Key, size int64, body *body) error {
	ctx, cancel := c.patient()
	defer cancel()
	if c.server.writers.addAlone(ctx, k) != nil {
		return errors.New("others are storing the object")
	}
	defer c.server.writers.remove(k)
	if size == 0 { // nobody reads it
		if err := body.rest(); err != nil {
			return err
		}
	}
	o := tier.Object{Key: k, Size: size}
	if half, ok := otherHalf(k.Name); ok {
		o.Parent = half // so that it goes first, since LMCache takes it for both
	}
	for {
		c.server.pins.drop(k)
		err := c.store.Put(c.server.ctx, o, body)
		// what is pinned for others may go in favour of this, as long as nothing is lost of it
		if body.left < size || !errors.Is(err, tier.ErrFull) || !c.server.pins.dropOldest() {
			return err
		}
	}
}

// notStored answers that a value is not stored.
func (c *conn) notStored(k tier.Key, why error) {
	c.server.counts.notStored.Add(1)
	c.server.notStored.Warn(c.server.o.Logger, "resp: an object was not stored", "object", k, "error", why)
	switch {
	case c.plain:
		c.padded(len("+OK\r\n"))
	case errors.Is(why, tier.ErrFull), errors.Is(why, tier.ErrTooLarge):
		c.error("OOM %v", why)
	default:
		c.error("ERR %v", why)
	}
}

// body is the value of a SET, as far as it was not read yet. Its last bytes come when its end was read, so
// that nothing is stored that is not complete.
type body struct {
	reader *reader
	left   int64
	begun  bool  // to be read
	ended  bool  // with the end of the argument
	err    error // of the connection
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.left == 0 {
		return 0, io.EOF
	}
	if b.begin(); b.err == nil {
		n, b.err = b.reader.in.Read(p[:min(int64(len(p)), b.left, stride)])
	}
	before := b.left
	if b.left -= int64(n); b.err == nil && b.left/stride != before/stride {
		b.err = b.reader.wait()
	}
	if b.left == 0 && b.rest() != nil {
		return 0, b.err
	}
	return n, b.err
}

// begin gives the client time for the value, since others may have stored theirs for long.
func (b *body) begin() {
	if !b.begun {
		b.begun = true
		b.err = b.reader.wait()
	}
}

// rest reads past what was not read, and the end of the argument. The error is the connection's.
func (b *body) rest() error {
	b.begin()
	if b.err == nil && !b.ended {
		b.ended = true
		b.err = b.reader.skip(b.left)
		if b.err == nil {
			b.err = b.reader.end()
		}
	}
	return b.err
}
