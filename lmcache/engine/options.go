package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/internal/torchdtype"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/paged"
	"github.com/ringcache/ringcache/tier"
)

// Options describe an Engine. Store, Buffers and Layout are needed; zero values of the rest work.
type Options struct {
	Store *tier.Store
	// Buffers are the paged KV buffers of the worker, in memory of this process.
	Buffers *paged.Buffers
	// Layout is what decides whether bytes fit. It has one group, which agrees with Buffers.
	Layout kv.Layout
	Worker int // of Layout.World

	// Database makes the engine use LMCache's own keys, with LMCache's description of each object in its
	// note, so that LMCache reads and writes the same tree of files or the same Redis: Space is that of the
	// level with the layout of LMCache, and is needed. Without a Database, spaces and names are those of
	// `ringcache serve`, whose workers share chunks of all layers with the engine.
	Database *kv.TokenDatabase
	Space    string

	// Layered makes each layer of a chunk an object of its own. LoadLayers and SaveLayers need it, and Store
	// and Retrieve are without it.
	Layered bool
	// LayerFormat is that of a chunk of one layer: KVT2D, or KV2TD as with LMCache's blending. 0 is KVT2D,
	// and KVMLA for buffers with one plane.
	LayerFormat paged.Format
	// Window is how many layers LoadLayers has in work at most, with the one that is used. 0 is 2: the next layer is
	// loaded while one is used.
	Window int

	// TTL, if not 0, is how old a chunk may be to be found. LMCache's keys have no room for the time, so with a
	// Database it is refused: a Redis has a time of its own. What a worker of `ringcache serve` stored has no
	// time, and does not expire.
	TTL time.Duration
	// Tenant is who is charged for what is stored, in the store's quotas.
	Tenant string
	// LeaseTime is how long what a call has pinned stays after the process was killed. Each step of a call
	// renews it, and a step that takes longer fails. 0 is 5 minutes.
	LeaseTime time.Duration
	// Now is the clock of TTL; nil is time.Now.
	Now func() time.Time
}

const (
	defaultWindow    = 2
	maxWindow        = 64
	defaultLeaseTime = 5 * time.Minute
)

// Validate reports what is wrong with options, as an fs.ErrInvalid.
func (o Options) Validate() error { return invalid(o.withDefaults().check()) }

func (o Options) withDefaults() Options {
	if o.LayerFormat == 0 && o.Buffers != nil {
		o.LayerFormat = paged.KVT2D
		if o.Buffers.Geometry().Layout.Planes() == 1 {
			o.LayerFormat = paged.KVMLA
		}
	}
	if o.Window == 0 {
		o.Window = defaultWindow
	}
	if o.LeaseTime == 0 {
		o.LeaseTime = defaultLeaseTime
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func (o Options) check() error {
	if o.Store == nil || o.Buffers == nil {
		return errors.New("there is no Store, or there are no Buffers")
	}
	if err := o.checkLayout(); err != nil {
		return err
	}
	one := o.Buffers.Geometry().Layout.Planes() == 1
	switch {
	case one != (o.LayerFormat == paged.KVMLA) || !one && o.LayerFormat != paged.KVT2D && o.LayerFormat != paged.KV2TD:
		return fmt.Errorf(
			"the format %v of a layer does not fit buffers of the layout %s",
			o.LayerFormat, o.Buffers.Geometry().Layout)
	case o.Window < 1 || o.Window > maxWindow:
		return fmt.Errorf("a window of %d layers; 1 to %d are possible", o.Window, maxWindow)
	case o.TTL < 0 || o.LeaseTime < time.Second:
		return fmt.Errorf("TTL is %v and LeaseTime %v; they are 0 or more, and a second or more", o.TTL, o.LeaseTime)
	case o.Database != nil && o.TTL > 0:
		return errors.New("LMCache's keys have no room for the time, so there is no TTL with a Database")
	case (o.Database == nil) != (o.Space == ""):
		return errors.New("a Database and a Space need each other")
	}
	if o.Database == nil {
		return nil
	}
	return o.checkDatabase()
}

// checkLayout compares the layout with the buffers.
func (o Options) checkLayout() error {
	if _, err := o.Layout.Space(o.Worker, 0, ""); err != nil { // checks all of it
		return err
	}
	g, b := o.Layout.Groups[0], o.Buffers.Geometry()
	switch {
	case len(o.Layout.Groups) != 1 || g.Window != 0 || g.Recurrent:
		return errors.New(
			"the layout has several groups, a window or a state: " +
				"an engine has one group of layers that keep every token")
	case g.Slots != o.Layout.ChunkTokens:
		return fmt.Errorf("the layout has %d slots in a chunk of %d tokens", g.Slots, o.Layout.ChunkTokens)
	case g.Layers != b.Layers || g.Planes != b.Layout.Planes() ||
		g.BlockTokens != b.BlockTokens || g.Hidden != b.Heads*b.HeadSize ||
		torchdtype.Find(g.DType).Size != b.ElementSize:
		return fmt.Errorf(
			"the layout has %d layers, %d planes, blocks of %d tokens, "+
				"and %d elements of %s in a token; the buffers are %+v",
			g.Layers, g.Planes, g.BlockTokens, g.Hidden, g.DType, b)
	}
	return nil
}

// checkDatabase compares the layout with the keys of the database.
func (o Options) checkDatabase() error {
	if err := (tier.Key{Space: o.Space, Name: "any"}).Validate(); err != nil {
		return err
	}
	chunks, err := o.Database.Hashed([]string{"1"}, []int{1}, nil)
	if err != nil {
		return err
	}
	if k := chunks[0].Key; k.Model != o.Layout.Model || k.DType != o.Layout.Groups[0].DType {
		return fmt.Errorf(
			"the database has keys of the model %q and %s, "+
				"and the layout is of %q and %s",
			k.Model, k.DType, o.Layout.Model,
			o.Layout.Groups[0].DType)
	}
	_, err = lmcacheNote(o, 1, o.Layered) // which refuses dtypes that LMCache has no number for
	return err
}
