package lrusync

// What travels between the two ends of a pair, and back.

// Item is one item of a request, in the order of the prompt positions.
type Item struct {
	Key string
	// HasData reports that the data is at hand, so that it can be sent. Size is
	// then its bytes by [ItemSize], and Updates are the prompt updates to keep
	// with it, opaque and not copied.
	HasData bool
	Size    int64
	Updates []byte
	// Fresh sends the data even if the peer has it.
	Fresh bool
}

// Envelope identifies a request to a [Receiver], which notices by it that
// requests were lost or overtook each other. It has to travel with the request.
// vLLM's receiver has no use for it, and vLLM's sender sends none: the zero
// Envelope stands for that.
type Envelope struct {
	Sender uint64 // random for each Sender
	Epoch  uint64 // rises with each Clear and each repair
	Seq    uint64 // of the request within the epoch
	Digest uint64 // of all that happened before, within the epoch
}

// Ticket is the place of a request in the order that both ends keep, and what
// follows for its items.
type Ticket struct {
	Envelope
	// Omit reports for each item that the peer has it: send None in its place.
	Omit []bool
	// Updates are the prompt updates of each item.
	Updates [][]byte
	// Added and Evicted are the keys that the peer has, or has no longer, once
	// it received the request.
	Added, Evicted []string
}

// Feature is one item of a request as it arrives.
type Feature[V any] struct {
	// Key is the item's cache key, vLLM's mm_hash. Identifier is the key of its
	// encoder output, which differs from Key under LoRA; it stands in for an
	// empty Key, and is the cache key before vLLM 0.14.
	Key, Identifier string
	// HasData reports that the item came with data: Value, of Size bytes by
	// [ItemSize].
	HasData bool
	Value   V
	Size    int64
}

// Result is what became of a request in [Receiver.Receive].
type Result[V any] struct {
	// Values of the features in order, for the model.
	Values []V
	// Missing are the keys of features that came without data and are not
	// cached; their Values are zero. The sender has to send the request again.
	Missing []string
	// Drift, if not nil, is for [Sender.Repair].
	Drift *Drift
}

// Drift is the report of a [Receiver] that requests were lost or came in another
// order than they were sent. The receiver has stopped caching; Contents, oldest
// first, is what it holds.
type Drift struct {
	Sender, Epoch uint64
	Contents      []KeySize
}

// Stats counts the queries of a cache since it was made or cleared, as vLLM does
// (CacheInfo).
type Stats struct {
	Hits, Total int64
}

// KeySize is an entry of a cache, without its value.
type KeySize struct {
	Key  string
	Size int64 // bytes
}
