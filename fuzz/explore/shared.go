package explore

import "fmt"

// Var is a variable that processes share. Its value is printed by fmt with %v. Values that differ
// must print differently, since states are compared by that text.
type Var[T any] struct {
	run   *Run
	name  string
	value T
}

// NewVar declares a variable.
func NewVar[T any](r *Run, name string, value T) *Var[T] {
	v := &Var[T]{run: r, name: name, value: value}
	r.shared = append(r.shared, v)
	return v
}

// Get returns the value. It is no step of its own: the caller calls Step before.
func (v *Var[T]) Get() T {
	if p := v.run.current; p != nil {
		p.learn(v.text())
	}
	return v.value
}

// Set replaces the value. It is no step of its own.
func (v *Var[T]) Set(value T) {
	v.value = value
}

func (v *Var[T]) text() string { return fmt.Sprintf("%s=%v", v.name, v.value) }

func (v *Var[T]) killed(*Process) {}

// Lock is a lock that processes share.
type Lock struct {
	name   string
	robust bool
	holder *Process
}

// NewLock declares a lock. If robust is true it becomes free when its holder is killed, as a
// lock of the kernel does; else it stays locked for ever, as a semaphore does.
func NewLock(r *Run, name string, robust bool) *Lock {
	l := &Lock{name: name, robust: robust}
	r.shared = append(r.shared, l)
	return l
}

// Lock waits for the lock and takes it, in one step with what follows.
func (l *Lock) Lock(p *Process) {
	p.Wait(func() bool { return l.holder == nil }, "lock %s", l.name)
	l.holder = p
}

// Unlock gives the lock back, in a step.
func (l *Lock) Unlock(p *Process) {
	p.Step("unlock %s", l.name)
	if l.holder != p {
		p.Failf("unlocks %s, which it does not have", l.name)
	}
	l.holder = nil
}

func (l *Lock) text() string {
	if l.holder == nil {
		return l.name + "=free"
	}
	return l.name + "=" + l.holder.name
}

func (l *Lock) killed(p *Process) {
	if l.robust && l.holder == p {
		l.holder = nil
	}
}
