package engine

// outbox contains what the engine sent for a request and nobody has read, and the last
// word. The stream's lock guards all but news.
type outbox struct {
	outputs []Output      // bounded by the stream's limits
	last    error         // io.EOF at the regular end, nil before the end
	news    chan struct{} // of one: outputs or last has changed
}

func newOutbox() outbox { return outbox{news: make(chan struct{}, 1)} }

// put adds an output.
func (b *outbox) put(o Output) {
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
	if len(b.outputs) == 0 {
		return Output{}, b.last != nil, b.last
	}
	o = b.outputs[0]
	b.outputs[0] = Output{} // the slice may live on
	b.outputs = b.outputs[1:]
	return o, true, nil
}
