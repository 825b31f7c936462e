package codec

// Messages have tables of their fields, of which these functions make the entries: R reads, W writes, T is
// the message, and V the type of the field.

// Value reads a field that is never None.
func Value[R, T, V any](at func(*T) *V, read func(R, string) (V, error)) func(R, *T, string) error {
	return func(r R, t *T, name string) (err error) {
		*at(t), err = read(r, name)
		return err
	}
}

// OrNone reads a field of which None is the zero value.
func OrNone[R interface{ Nil() bool }, T, V any](
	at func(*T) *V, read func(R, string) (V, error),
) func(R, *T, string) error {
	value := Value(at, read)
	return func(r R, t *T, name string) error {
		if r.Nil() {
			return nil
		}
		return value(r, t, name)
	}
}

// Optional reads a field that points to a value, or to nothing for None.
func Optional[R interface{ Nil() bool }, T, V any](
	at func(*T) **V, read func(R, string) (V, error),
) func(R, *T, string) error {
	return OrNone(at, func(r R, name string) (*V, error) {
		v, err := read(r, name)
		if err != nil {
			return nil, err
		}
		return &v, nil
	})
}

// ListOf reads a list of what read reads.
func ListOf[R interface{ Array(string) (int, error) }, T any](
	read func(R, string) (T, error),
) func(R, string) ([]T, error) {
	return func(r R, what string) ([]T, error) {
		n, err := r.Array(what)
		if err != nil {
			return nil, err
		}
		out := make([]T, 0, Small(n))
		for range n {
			v, err := read(r, what)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}
}

// Fields are the fields of an object by their names.
type Fields[R objectReader, T any] map[string]func(R, *T, string) error

type objectReader interface {
	Object(what string, required []string, read func(name string) (known bool, err error)) error
}

// Into reads an object, see [Decoder.Object].
func (f Fields[R, T]) Into(r R, t *T, what string, required ...string) error {
	return r.Object(what, required, func(name string) (known bool, err error) {
		read, known := f[name]
		if known {
			err = read(r, t, name)
		}
		return known, err
	})
}

// Object returns a function that reads an object.
func (f Fields[R, T]) Object(required ...string) func(R, string) (T, error) {
	return func(r R, what string) (t T, err error) {
		err = f.Into(r, &t, what, required...)
		return t, err
	}
}

// FieldWriter writes a field of a T.
type FieldWriter[W, T any] struct {
	// Set reports whether the field has another value than Python's default.
	Set   func(*T) bool
	Write func(W, *T)
}

// Plain writes a field whose zero value is Python's default.
func Plain[W, T any, V comparable](of func(*T) V, write func(W, V)) FieldWriter[W, T] {
	var zero V
	return FieldWriter[W, T]{
		Set:   func(t *T) bool { return of(t) != zero },
		Write: func(w W, t *T) { write(w, of(t)) },
	}
}

// Pointer writes a field that is None if it points to nothing.
func Pointer[W interface{ Nil() }, T, V any](of func(*T) *V, write func(W, V)) FieldWriter[W, T] {
	return Plain(of, func(w W, v *V) {
		if v == nil {
			w.Nil()
			return
		}
		write(w, *v)
	})
}

// List writes a field that is None if it is nil.
func List[W interface{ Nil() }, T, E any](of func(*T) []E, write func(W, []E)) FieldWriter[W, T] {
	return FieldWriter[W, T]{
		Set: func(t *T) bool { return of(t) != nil },
		Write: func(w W, t *T) {
			if of(t) == nil {
				w.Nil()
				return
			}
			write(w, of(t))
		},
	}
}
