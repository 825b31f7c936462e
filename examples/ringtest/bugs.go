package ring

// Bug is a defect of a [Queue] that is switched on; 0 is none.
type Bug int

// The defects.
const (
	NoBug             Bug = iota
	LimitOffByThree       // a slot reaches three bytes into the oldest one
	LimitOffByOne         // a slot that wraps reaches one byte into the oldest one
	SizeWithoutHeader     // the size in the header is that of the payload
	SizeOfTheLast         // the size in the header is that of the slot before
	IDNotWrapped          // 2^31 follows 2^31-1
	IDsRestart            // Reset starts the ids again
	PaddingForgotten      // bytes left out at the end are not taken back
	StartNotReset         // an empty queue goes on where it was
	NewestFirst           // the newest is returned if the oldest has to stay
	DoubleReturn          // an id that was returned is returned again
	EmptyBeginsBehind     // an empty queue leaves the old header at 0 where it is
	RoundDown             // slots are aligned down, into the one in front
	LostAtExactFit        // a slot that ends with the memory is not recorded
	ClearLeavesOne        // Reset leaves the newest slot
	Overflow              // sizes are added in 32 bits
	NegativeSize          // a size below 0 is accepted
	RefusalMovesTail      // what is refused at the end of the memory has wrapped
	ScrubTooFar           // a returned slot is cleared with the byte behind it
	LastIsKept            // of three slots that may go, two do
	WindowBehind          // the first id in use is that of a slot returned before
	EmptyPanics           // returning to an empty queue panics
	Blink                 // while a slot is written, the oldest has no id
)

var bugNames = []string{
	"none", "limit off by three", "limit off by one", "size without the header", "size of the slot before", "id not wrapped at 2^31",
	"ids restart after a clear", "padding forgotten", "start not reset", "newest first", "double free accepted", "stale id stays valid",
	"alignment rounds down", "lost at exact fit", "clear leaves a slot", "32-bit overflow", "negative size accepted",
	"a refusal moves the tail", "scrub too far", "one of three stays", "id window lags", "panic when empty", "id gone for a moment",
}

func (b Bug) String() string { return bugNames[b] }
