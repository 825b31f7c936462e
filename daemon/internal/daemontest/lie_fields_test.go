package daemontest

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLiesSetEveryField, also one that the protocol gets later.
func TestLiesSetEveryField(t *testing.T) {
	l := &liar{o: LieOptions{Victim: "victim-of-lies"}, rng: rand.New(rand.NewPCG(1, 2))}
	all, set := map[string]bool{}, map[string]bool{}
	look := func(v reflect.Value) {
		for i := range v.NumField() {
			name := v.Type().Name() + "." + v.Type().Field(i).Name
			all[name] = true
			if !v.Field(i).IsZero() {
				set[name] = true
			}
		}
	}
	for range 5000 {
		q := l.request()
		look(reflect.ValueOf(*q))
		for _, o := range q.Objects {
			look(reflect.ValueOf(o))
		}
	}
	require.Equal(t, all, set)
}
