package segment

import "sync/atomic"

// holders counts the holds of a mapping in one atomic word, so that goroutines which hold and
// release don't wait for each other. The two highest bits of the word are flags; with one of
// them, the last holder that leaves has something to do.
type holders struct {
	_    [64]byte // the fields around it are read by every holder
	word atomic.Uint64
	_    [64]byte
}

const (
	holdersClosed  = 1 << 63 // nobody enters any more
	holdersAwaited = 1 << 62 // somebody waits for a moment without a holder
	holdersCount   = holdersAwaited - 1
)

// enter adds a holder. It reports whether the mapping is open.
func (h *holders) enter() bool {
	for {
		w := h.word.Load()
		if w&holdersClosed != 0 {
			return false
		}
		if h.word.CompareAndSwap(w, w+1) {
			return true
		}
	}
}

// leave removes a holder. It reports whether that was the last one and a flag was set, and ends
// await then.
func (h *holders) leave() (last bool) {
	for {
		w := h.word.Load()
		n := w & holdersCount
		if n == 0 {
			panic("segment: Release without Hold")
		}
		next := w - 1
		if n == 1 {
			next &^= holdersAwaited
		}
		if h.word.CompareAndSwap(w, next) {
			return n == 1 && w != 1
		}
	}
}

// count returns the number of holders.
func (h *holders) count() int { return int(h.word.Load() & holdersCount) }

// closed reports whether nobody enters any more.
func (h *holders) closed() bool { return h.word.Load()&holdersClosed != 0 }

// closeIdle closes, unless there are holders, and returns their number.
func (h *holders) closeIdle() int {
	for {
		w := h.word.Load()
		if n := w & holdersCount; n != 0 {
			return int(n)
		}
		if h.word.CompareAndSwap(w, w|holdersClosed) {
			return 0
		}
	}
}

// close closes, whoever holds, and returns the number of holders.
func (h *holders) close() int { return int(h.word.Or(holdersClosed) & holdersCount) }

// await makes the last leave report it, unless there is no holder.
func (h *holders) await() {
	for {
		w := h.word.Load()
		if w&holdersCount == 0 || h.word.CompareAndSwap(w, w|holdersAwaited) {
			return
		}
	}
}

// awaited reports whether there was a holder at every moment since await.
func (h *holders) awaited() bool { return h.word.Load()&holdersAwaited != 0 }
