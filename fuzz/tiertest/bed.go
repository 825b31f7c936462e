package tiertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// bed is a sub-test with its level. Its methods that expect something end the test if it is not so; they
// must be called by the goroutine of the test.
type bed struct {
	testing.TB
	o *Options
	l tier.Level
}

var background = context.Background()

// open opens the level of the test. It is closed at the end.
func (b *bed) open(capacity int64) {
	b.Helper()
	b.take(b.o.Open(b, capacity))
}

func (b *bed) take(l tier.Level) {
	b.Helper()
	if l == nil {
		b.Fatalf("the level is nil")
	}
	b.l = l
	b.Cleanup(func() {
		if b.l == l { // else it was killed
			b.wait("Close at the end of the test", func() { _ = l.Close() })
		}
	})
}

// openLimited opens a level of the options' capacity, and returns the size of objects of which a dozen have
// room.
func (b *bed) openLimited() (unit int64) {
	b.Helper()
	b.open(b.o.Capacity)
	return b.o.Capacity / 16
}

func key(name string) tier.Key { return tier.Key{Space: "s", Name: name} }

func object(name string, size int64) tier.Object { return tier.Object{Key: key(name), Size: size} }

func child(name, parent string, size int64) tier.Object {
	o := object(name, size)
	o.Parent = parent
	return o
}

// content returns the bytes of an object, which differ between keys, between sizes, and between places: a
// block of random bytes again and again, with a count in it. It is made by copying, since tests make much of
// it.
func content(k tier.Key, size int64) []byte {
	h := fnv.New64a()
	_, _ = io.WriteString(h, k.Space+"\x00"+k.Name)
	r := rand.New(rand.NewPCG(h.Sum64(), uint64(size)))
	out := make([]byte, size)
	const block, every = 251, 500
	for i := range min(block, len(out)) {
		out[i] = byte(r.Uint32())
	}
	for n := block; n < len(out); n *= 2 {
		copy(out[n:], out[:n])
	}
	seed := r.Uint64()
	for i := every; i+8 <= len(out); i += every {
		binary.LittleEndian.PutUint64(out[i:], seed+uint64(i)*0x9e3779b97f4a7c15)
	}
	return out
}

func putOf(o tier.Object) tier.Put { return tier.Put{Object: o, Bytes: content(o.Key, o.Size)} }

// try puts one object.
func (b *bed) try(o tier.Object) error {
	puts := []tier.Put{putOf(o)}
	b.l.Put(background, puts)
	return puts[0].Err
}

// put puts objects as one batch, which has to succeed.
func (b *bed) put(objects ...tier.Object) {
	b.Helper()
	var puts []tier.Put
	for _, o := range objects {
		puts = append(puts, putOf(o))
	}
	b.l.Put(background, puts)
	for i, p := range puts {
		b.is("Put of "+show(objects[i].Key), p.Err, nil)
	}
}

// is expects an error, or none.
func (b *bed) is(what string, got, want error) {
	b.Helper()
	if want == nil && got != nil || !errors.Is(got, want) {
		b.Fatalf("%s: the error is %v, expected %v", what, got, want)
	}
}

// miss expects a plain miss.
func (b *bed) miss(what string, err error) {
	b.Helper()
	b.is(what, err, tier.ErrNotFound)
	if errors.Is(err, tier.ErrCorrupt) {
		b.Fatalf("%s: the error is %v, of an object that was never damaged", what, err)
	}
}

// show is a key in a message. Keys of tests may be long.
func show(k tier.Key) string {
	s := k.String()
	if len(s) > 100 {
		s = fmt.Sprintf("%s... of %d bytes", s[:60], len(k.Name))
	}
	return s
}

// whole expects an object's description and bytes.
func whole(got tier.Object, bytesGot []byte, want tier.Object) error {
	if err := described(got, want); err != nil {
		return err
	}
	if c := content(want.Key, want.Size); !bytes.Equal(bytesGot, c) {
		return fmt.Errorf("object %s has wrong bytes: %s", show(want.Key), differ(bytesGot, c))
	}
	return nil
}

func differ(got, want []byte) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d instead of %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("the first that differs is number %d of %d", i, len(got))
		}
	}
	return "none differs"
}

var objectFields = reflect.VisibleFields(reflect.TypeFor[tier.Object]())

// described compares descriptions, of which every field counts. A note of no bytes is none.
func described(got, want tier.Object) error {
	for _, f := range objectFields {
		if f.Anonymous {
			continue // its fields are in the list, too
		}
		g, w := reflect.ValueOf(got).FieldByIndex(f.Index), reflect.ValueOf(want).FieldByIndex(f.Index)
		same := reflect.DeepEqual(g.Interface(), w.Interface())
		if f.Type.Kind() == reflect.Slice {
			same = bytes.Equal(g.Bytes(), w.Bytes())
		}
		if !same {
			return fmt.Errorf("object %s has the %s %.60v, and was put with %.60v", show(want.Key), f.Name, g, w)
		}
	}
	return nil
}

// get expects objects to be there, and whole, in one batch.
func (b *bed) get(objects ...tier.Object) {
	b.Helper()
	gets := make([]tier.Get, len(objects))
	for i, o := range objects {
		gets[i].Key = o.Key
	}
	b.l.Get(background, gets)
	for i, g := range gets {
		b.is("Get of "+show(objects[i].Key), g.Err, nil)
		if err := whole(g.Object, g.Bytes, objects[i]); err != nil {
			b.Fatalf("Get: %v", err)
		}
	}
}

// gone expects a miss of objects.
func (b *bed) gone(objects ...tier.Object) {
	b.Helper()
	for _, o := range objects {
		b.miss("Stat of "+show(o.Key), b.l.Stat(background, []tier.Key{o.Key})[0].Err)
		gets := []tier.Get{{Key: o.Key}}
		b.l.Get(background, gets)
		b.miss("Get of "+show(o.Key), gets[0].Err)
	}
}

// there reports which objects Stat finds, in one batch.
func (b *bed) there(objects ...tier.Object) []bool {
	b.Helper()
	keys := make([]tier.Key, len(objects))
	for i, o := range objects {
		keys[i] = o.Key
	}
	out := make([]bool, len(objects))
	for i, f := range b.l.Stat(background, keys) {
		out[i] = f.Err == nil
		if f.Err != nil {
			b.miss("Stat of "+show(keys[i]), f.Err)
		} else if err := described(f.Object, objects[i]); err != nil {
			b.Fatalf("Stat: %v", err)
		}
	}
	return out
}

func (b *bed) isThere(o tier.Object) bool {
	b.Helper()
	return b.there(o)[0]
}

// delete deletes objects, which has to succeed.
func (b *bed) delete(objects ...tier.Object) {
	b.Helper()
	for _, o := range objects {
		b.is("Delete of "+show(o.Key), b.l.Delete(background, []tier.Key{o.Key})[0], nil)
	}
}

// list returns what List lists, and expects that nothing is listed twice, and no error.
func (b *bed) list(space string) map[tier.Key]tier.Object {
	b.Helper()
	out := map[tier.Key]tier.Object{}
	for o, err := range b.l.List(background, space) {
		b.is("List", err, nil)
		if _, twice := out[o.Key]; twice {
			b.Fatalf("List: %s is in the list twice", show(o.Key))
		}
		out[o.Key] = o
	}
	return out
}

// has expects exactly these objects in the level: of Stat, List and Usage.
func (b *bed) has(objects ...tier.Object) {
	b.Helper()
	list := b.list("")
	for _, o := range objects {
		got, ok := list[o.Key]
		if !ok {
			b.Fatalf("List: %s is not in the list", show(o.Key))
		}
		if err := described(got, o); err != nil {
			b.Fatalf("List: %v", err)
		}
		if !b.isThere(o) {
			b.Fatalf("Stat: %s is in the list of all objects, and not there", show(o.Key))
		}
		delete(list, o.Key)
	}
	for k := range list {
		b.Fatalf("List: %s is in the list, expected not to be there", show(k))
	}
	b.usage(objects...)
}

// usage expects that exactly these objects are counted, and returns the counts.
func (b *bed) usage(objects ...tier.Object) tier.Usage {
	b.Helper()
	u := b.l.Usage()
	var sum int64
	tenants := map[string]int64{}
	for _, o := range objects {
		sum += o.Size
		if o.Tenant != "" {
			tenants[o.Tenant] += o.Size
		}
	}
	if u.Objects != -1 && u.Objects != int64(len(objects)) {
		b.Fatalf("Usage has %d objects, and %d are there", u.Objects, len(objects))
	}
	if u.Bytes != -1 && u.Bytes < sum {
		b.Fatalf("Usage has %d bytes, and the objects that are there have %d", u.Bytes, sum)
	}
	if len(objects) == 0 && u.Bytes > 0 && u.Held == 0 {
		b.Fatalf("Usage has %d bytes, and no object is there", u.Bytes)
	}
	for tenant, n := range tenants {
		if u.Tenants != nil && u.Tenants[tenant] < n {
			b.Fatalf("Usage has %d bytes of tenant %.60q, whose objects have %d", u.Tenants[tenant], tenant, n)
		}
	}
	for tenant, n := range u.Tenants {
		if tenants[tenant] == 0 && n != 0 && u.Held == 0 {
			b.Fatalf("Usage has %d bytes of tenant %.60q, who has no object", n, tenant)
		}
	}
	if err := bounds(u); err != nil {
		b.Fatalf("%v", err)
	}
	return u
}

// bounds checks what holds for the counts at any time.
func bounds(u tier.Usage) error {
	switch {
	case u.Objects < -1 || u.Bytes < -1 || u.Capacity < -1 || u.Held < -1 || u.Evicted < -1 || u.Corrupt < -1:
		return fmt.Errorf("a count of Usage is negative: %+v", u)
	case u.Capacity > 0 && u.Bytes > u.Capacity:
		return fmt.Errorf("Usage has %d bytes, and the capacity is %d", u.Bytes, u.Capacity)
	case u.Bytes >= 0 && u.Held > u.Bytes:
		return fmt.Errorf("Usage has %d bytes that can't be evicted, of %d", u.Held, u.Bytes)
	}
	return nil
}

// wait expects that do returns.
func (b *bed) wait(what string, do func()) {
	b.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	b.until(what, done)
}

// until expects that a channel is closed, or sent to.
func (b *bed) until(what string, done <-chan struct{}) {
	b.Helper()
	limit := time.NewTimer(b.o.patience)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		b.Fatalf("%s: nothing after %v", what, b.o.patience)
	}
}

// eventually expects that a condition becomes true.
func (b *bed) eventually(what string, is func() bool) {
	b.Helper()
	for begin := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > b.o.patience {
			b.Fatalf("%s: not so after %v", what, b.o.patience)
		}
	}
}

// together runs do for 0 to n-1, each in a goroutine, and expects that none fails.
func (b *bed) together(n int, do func(i int) error) {
	b.Helper()
	errs := make([]error, n)
	b.wait("goroutines", func() {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { errs[i] = do(i) })
		}
		all.Wait()
	})
	for _, err := range errs {
		if err != nil {
			b.Fatalf("%v", err)
		}
	}
}

// deleteAll reads and deletes what is there.
func (b *bed) deleteAll() {
	b.Helper()
	var all []tier.Object
	for _, o := range b.list("") {
		all = append(all, o)
	}
	b.has(all...)
	b.get(all...)
	b.delete(all...)
	b.has()
}
