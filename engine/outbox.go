package engine

// outbox contains what the engine sent for a request and nobody has read, and the last
// word. The stream's lock guards all but news.
type outbox struct {
	outputs []Output // bounded by the stream's limits; those before next are taken
	next    int
	last    error         // io.EOF at the regular end, nil before the end
	news    chan struct{} // of one: outputs or last has changed
}

func newOutbox() outbox { return outbox{news: make(chan struct{}, 1)} }

// put adds an output. Before the slice grows, what was taken makes room if it is half of it.
func (b *outbox) put(o Output) {
	if len(b.outputs) == cap(b.outputs) && b.next > 0 && b.next >= len(b.outputs)/2 {
		n := copy(b.outputs, b.outputs[b.next:])
		clear(b.outputs[n:])
		b.outputs, b.next = b.outputs[:n], 0
	}
	b.outputs = append(b.outputs, o)
	b.wake()
}

// end sets the last word.
func (b *outbox) end(last error) {
	b.last = last
	b.wake()
}

// wake has the reader look.
func (b *outbox) wake() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// take removes the next output. Behind the last one it returns the last word; found is
// false while there is neither.
func (b *outbox) take() (o Output, found bool, err error) {
	if b.next == len(b.outputs) {
		return Output{}, b.last != nil, b.last
	}
	o = b.outputs[b.next]
	b.outputs[b.next] = Output{} // the slice lives on
	if b.next++; b.next == len(b.outputs) {
		b.outputs, b.next = b.outputs[:0], 0
	}
	return o, true, nil
}
