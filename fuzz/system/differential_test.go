package system_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
	"github.com/ringcache/ringcache/fuzz/system"
)

// releases are one of each wire generation.
var releases = []string{"0.11.2", "0.12.0", "0.13.0", "0.16.0", "0.31.0", "0.32.0", "0.33.0"}

// TestOursAgreesWithTheModels performs sequences of every family and release on this module and
// on the models.
func TestOursAgreesWithTheModels(t *testing.T) {
	for _, family := range system.Families() {
		for _, version := range releases {
			t.Run(family.Name+"/"+version, func(t *testing.T) {
				release, err := model.Lookup(version)
				require.NoError(t, err)
				c := system.Case{Release: release, Ours: true}
				d := system.Differential{
					Family: family, Case: c, Seed: 1, Ops: 3000,
					Lead:     func(context.Context) (fuzz.System, error) { return system.Agent(), nil },
					Follower: func(context.Context) (fuzz.System, error) { return family.Model(c), nil },
				}
				r, err := d.Run(t.Context())
				require.NoError(t, err)
				if r.Failure != nil {
					t.Fatal(r.Failure)
				}
				require.GreaterOrEqual(t, r.Ops, 3000)
				require.Zero(t, r.Parted)
			})
		}
	}
}
