package lrusync

// TouchGhost lets tests leave ghosts, which otherwise exist only within a Send.
func (l *LRU[V]) TouchGhost(key string) { l.touchGhost(key) }
