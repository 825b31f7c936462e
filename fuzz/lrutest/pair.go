package lrutest

// Sender is the end of a mirrored pair that decides what has to be sent.
type Sender interface {
	// Send works out a request and hands it to link, which returns an error if it can't be sent:
	// then nothing must have changed. need lists the keys without whose data the request can't
	// be made; nothing is sent then, either. An error is a request that never can be sent.
	Send(items []Item, link func(Message) error) (need []string, err error)
	// Answered takes note of the receiver's answer to a message.
	Answered(m Message, a Answer)
	// Contents lists what the sender believes to be there, oldest first.
	Contents() []Entry
}

// Receiver is the end that keeps the values.
type Receiver interface {
	// Receive takes a message and answers it.
	Receive(m Message) Answer
	// Contents lists what is there, oldest first.
	Contents() []Entry
}

// Item is one of a request. The value of a key is always the same, as if the key were its hash.
type Item struct {
	Key   string
	Value []byte // its size is its length; nil if the data is not at hand
	Size  int64  // of the value, also if it is not at hand
}

// Message is what goes over the link.
type Message struct {
	Keys    []string
	Omitted []bool // for each item: sent without data
	Wire    any    // what the receiver gets
}

// Answer is what the receiver makes of a message.
type Answer struct {
	Values  [][]byte // of the items in order; that of a missing one does not matter
	Missing []string // keys that came without data and are not there
	Report  any      // what the sender gets besides, such as a report of drift
}

// ClearingSender can empty both ends by a message.
type ClearingSender interface {
	Clear(link func(Message) error) error
}
