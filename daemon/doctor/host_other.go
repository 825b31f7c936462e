//go:build !linux

package doctor

func (d *doctor) mount()        {}
func (d *doctor) memoryLimit()  {}
func (d *doctor) lockedMemory() {}
func (d *doctor) hugePages()    {}
func (d *doctor) removeIPC()    {}
func (d *doctor) splitLocks()   {}
