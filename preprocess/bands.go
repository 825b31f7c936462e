package preprocess

import (
	"context"
	"image"
	"runtime"
	"sync"
)

// resizing is the part of an image that is wanted after it was resized.
type resizing struct {
	in, out image.Point
	part    image.Rectangle // of out
	unit    int             // lines that one goroutine hands over, or multiples of them; 0: 1
}

// A large image is resized in bands of lines, each by a goroutine.
const (
	maxBands   = 4
	bandPixels = 1 << 17 // that are worth a goroutine: a millisecond or so
)

// bands returns how many there are.
func (r resizing) bands() int {
	pixels := max(r.in.X*r.in.Y, r.part.Dx()*r.part.Dy())
	if pixels < 2*bandPixels {
		return 1
	}
	return min(pixels/bandPixels, maxBands, runtime.GOMAXPROCS(0))
}

// run resizes, first across, then down, as torch does: with bytes in between.
// It hands over the lines of the wanted part, from several goroutines if the image is
// large; a line is gone when emit returns. All goroutines have ended when run returns,
// also by a panic, which is one of the caller's goroutine.
func (r resizing) run(ctx context.Context, src source, emit func(y int, line []byte)) error {
	b := band{
		resizing: r, emit: emit,
		across: newFilter(r.in.X, r.out.X, r.part.Min.X, r.part.Max.X),
		down:   newFilter(r.in.Y, r.out.Y, r.part.Min.Y, r.part.Max.Y),
	}
	unit := max(r.unit, 1)
	units := (r.part.Dy() + unit - 1) / unit
	n := r.bands()
	ends := make([]func() error, n) // by the band
	var others sync.WaitGroup
	for i := range n {
		begin, end := units*i/n*unit, min(units*(i+1)/n*unit, r.part.Dy())
		if i == n-1 {
			ends[i] = b.end(ctx, src, begin, end)
			continue
		}
		fork := src.fork()
		others.Go(func() { ends[i] = b.end(ctx, fork, begin, end) })
	}
	others.Wait()
	for _, end := range ends {
		if err := end(); err != nil {
			return err
		}
	}
	return nil
}

// end runs a band, and returns what repeats its end: an error or a panic.
func (r band) end(ctx context.Context, src source, begin, end int) (again func() error) {
	defer func() {
		if x := recover(); x != nil {
			again = func() error { panic(x) }
		}
	}()
	err := r.run(ctx, src, begin, end)
	return func() error { return err }
}

// band is what the goroutines of a resizing share.
type band struct {
	resizing
	across, down *filter
	emit         func(y int, line []byte)
}

// lines holds the lines of pixels that a band works on.
type lines struct {
	in    [2][]byte
	pairs []pair
	ring  []byte
	need  [][]byte // of the ring
	out   []byte
}

var linePool = sync.Pool{New: func() any { return new(lines) }}

// giveBack keeps the memory for another band, unless it is a lot.
func (l *lines) giveBack() {
	if 2*cap(l.in[0])+24*cap(l.pairs)+cap(l.ring)+24*cap(l.need)+cap(l.out) <= maxReused/maxBands {
		linePool.Put(l)
	}
}

// run makes the lines begin..end-1 of the wanted part.
func (r band) run(ctx context.Context, src source, begin, end int) error {
	keep := 2 // lines, one more than an output needs since two are made at a time
	if r.down != nil {
		keep = r.down.width + 1
	}
	width := channels * r.part.Dx()
	stride := groups(width)
	l := linePool.Get().(*lines)
	defer l.giveBack()
	for i := range l.in {
		l.in[i] = grow(l.in[i], channels*r.in.X)
	}
	l.pairs = grow(l.pairs, r.in.X)
	l.ring = grow(l.ring, stride*keep)
	l.need = grow(l.need, keep)
	l.out = grow(l.out, stride)
	kept := func(y int) []byte { return l.ring[y%keep*stride:][:stride] }

	next := 0
	for y := begin; y < end; y++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		first, count := r.down.need(y, r.part.Min.Y)
		if y == begin {
			next = first
		}
		for ; next < first+count; next += 2 {
			one, other := next, min(next+1, r.in.Y-1)
			in := [2][]byte{src.row(one, l.in[0]), src.row(other, l.in[1])}
			r.across.rows([2][]byte{kept(one), kept(other)}, in, r.part.Min.X, l.pairs)
		}
		if r.down == nil {
			r.emit(y, kept(first)[:width])
			continue
		}
		for i := range count {
			l.need[i] = kept(first + i)
		}
		r.down.sum(l.out, l.need[:count], y)
		r.emit(y, l.out[:width])
	}
	return nil
}
