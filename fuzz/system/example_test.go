package system_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
	"github.com/ringcache/ringcache/fuzz/system"
)

// Rings of this module beside the model of vLLM 0.33.0: the same replies, operation by operation.
func Example() {
	release, err := model.Lookup("0.33.0")
	if err != nil {
		log.Fatal(err)
	}
	family := system.Families()[0]
	result, err := system.Differential{
		Family: family, Case: system.Case{Release: release, Ours: true}, Ops: 1000,
		Lead:     func(context.Context) (fuzz.System, error) { return model.NewRing(release), nil },
		Follower: func(context.Context) (fuzz.System, error) { return system.Agent(), nil },
	}.Run(context.Background())
	fmt.Println(family.Name, result.Ops >= 1000, err)
	// Output: ring true <nil>
}
