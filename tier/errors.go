package tier

import "errors"

// Errors of levels and stores. They are answers about one object of a batch; their texts say
// which object, which level, and what to do.
var (
	// ErrNotFound is a miss: the object is not there, or was damaged and has been dropped.
	ErrNotFound = errors.New("tier: no such object")
	// ErrPending reports that the object is being stored or fetched: ask again later.
	ErrPending = errors.New("tier: object is pending")
	// ErrReserved is the ErrPending of a Pin about an object that somebody is storing: nobody fetches it, and it may
	// take as long as a reservation stays.
	ErrReserved = errors.New("tier: object is reserved")
	// ErrExists reports that Reserve was asked for an object that is there already.
	ErrExists = errors.New("tier: object exists")
	// ErrFull reports that an object has no room now: of the level, or of its tenant. Nothing
	// that somebody still needs goes, and no ancestor of what is being stored.
	ErrFull = errors.New("tier: no room")
	// ErrTooLarge reports that an object could never have room.
	ErrTooLarge = errors.New("tier: object is too large")
	// ErrInUse reports that an object can't be deleted, since a lease has it.
	ErrInUse = errors.New("tier: object is in use")
	// ErrUnavailable reports that a level is away: its server, its disk or its memory. Another
	// level may still answer.
	ErrUnavailable = errors.New("tier: level is unavailable")
	// ErrCorrupt reports bytes that are not what was put. The level has dropped the object, or
	// will not return it again. [Level.Get] returns it together with ErrNotFound.
	ErrCorrupt = errors.New("tier: object is corrupt")
	// ErrEnded reports that a lease has ended.
	ErrEnded = errors.New("tier: lease has ended")
)
