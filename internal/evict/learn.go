package evict

import (
	"math"
	"sync"
)

// learned is what the uses so far have shown of each class and age.
type learned struct {
	left  [classes][ages]shares
	rate  [classes][ages]float64
	stale [classes]bool // shares have changed since the rates were computed
}

// shares are how many left an age by being used, and in any way.
type shares struct{ used, all float64 }

// used counts that an object of a class was used at an age.
func (l *learned) used(class uint8, age int) {
	s := &l.left[class][age]
	s.used++
	s.all++
	l.stale[class] = true
}

// outlived counts that an object of a class was not used at an age.
func (l *learned) outlived(class uint8, age int) {
	l.left[class][age].all++
	l.stale[class] = true
}

// forget makes everything that was seen so far count half.
func (l *learned) forget() {
	for c := range l.left {
		for a := range l.left[c] {
			l.left[c][a].used /= 2
			l.left[c][a].all /= 2
		}
		l.stale[c] = true
	}
}

// refresh computes the rates of a class, if they can have changed.
func (l *learned) refresh(class int) {
	if l.stale[class] {
		l.stale[class] = false
		l.learn(class)
	}
}

// span is an interval of ages, for an object that has reached it: the expected
// returns and the expected time until it returns or outlives the interval, and
// the chance that it outlives it.
type span struct {
	returns, time, outlive float64
	rate                   float64 // returns / time
}

// then is s and, for what outlives it, next.
func (s span) then(next span) span {
	n := span{
		returns: s.returns + s.outlive*next.returns, time: s.time + s.outlive*next.time,
		outlive: s.outlive * next.outlive,
	}
	n.rate = n.returns / n.time
	return n
}

// learn computes the rates of a class. From the oldest age down, an age is worth
// keeping on into the next span as long as that has the better rate.
func (l *learned) learn(class int) {
	var later [ages]span // the spans after this age, the nearest last
	n := 0
	for a := ages - 1; a >= 0; a-- {
		width := float64(starts[a+1] - starts[a])
		s := l.left[class][a]
		q := (s.used + strength*priors[class][a]) / (s.all + strength)
		now := span{returns: q, time: width * (1 - q/2), outlive: 1 - q}
		now.rate = now.returns / now.time
		for n > 0 && later[n-1].rate > now.rate {
			n--
			now = now.then(later[n])
		}
		later[n] = now
		n++
		l.rate[class][a] = now.rate
	}
}

// priors are all values of prior.
var priors = func() (t [classes][ages]float64) {
	for c := range t {
		for a := range t[c] {
			t[c][a] = prior(c, start(a), float64(start(a+1)-start(a)))
		}
	}
	return t
}()

// prior is the share that returns while its age grows from start by width as
// long as nothing is known: returns come as often as they did, and new objects
// are like those that returned a quarter of a time in 256 uses.
func prior(class int, start int64, width float64) float64 {
	returns, time := 0.25, 256.0
	if class > 0 {
		level, gap := (class-1)/gaps, (class-1)%gaps
		returns = 1.5 * float64(int(1)<<level)
		time = returns * math.Exp2(float64(gap)+0.5)
	}
	return 1 - math.Exp(-width*returns/(time+float64(start)))
}

// unlearned returns the rates as long as nothing was seen.
var unlearned = sync.OnceValue(func() [classes][ages]float64 {
	l := &learned{}
	for c := range classes {
		l.learn(c)
	}
	return l.rate
})
