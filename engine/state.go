package engine

// Three things live here: a client, its session with one engine process, and the
// stream of one request with its children. Each has a state, the tables below have
// every transition, and one function ends each of them, whatever the reason:
// Client.Close, session.end and Stream.end. An event that a row leaves out changes
// nothing.
//
// Client, guarded by Client.mu:
//
//	| state   | close   | closed |
//	| open    | closing | -      |
//	| closing | -       | closed |
//	| closed  | -       | -      |
//
// An open client starts engines, and passes requests and calls on to its session.
// From closing on all of these fail with fs.ErrClosed. Requests under way may end while
// the client is closing, as long as the context of Close lets them.
//
// Session, guarded by session.mu:
//
//	| state    | ready   | slept  | woke    | leave   | end  | given back |
//	| starting | running | -      | -       | -       | gone | -          |
//	| running  | -       | asleep | -       | leaving | gone | -          |
//	| asleep   | -       | -      | running | leaving | gone | -          |
//	| leaving  | -       | -      | -       | -       | gone | -          |
//	| gone     | -       | -      | -       | -       | -    | over       |
//	| over     | -       | -      | -       | -       | -    | -          |
//
// Requests are sent while the session is running; utility calls while it is running,
// asleep or leaving. "leave" comes from Client.Close, for an engine that runs on. "end"
// comes from the engine (its last words, its process, a lost connection, an answer that
// can't be read), from its silence, from a failed send, from a failed Start and from
// Client.Close; the first cause counts. "given back" means that the sockets are
// closed, every stream has ended, and the process, if the client started it, has been
// waited for.
//
// Stream, guarded by Stream.mu:
//
//	| state   | end   | free    |
//	| open    | ended | -       |
//	| ended   | -     | settled |
//	| settled | -     | -       |
//
// Outputs are taken, and children are sent, while the stream is open. "end" comes
// with the last output of the last child, from Stream.Close, from the end of the
// context, from Client.Close, from the end of the session, from an answer that is an
// error or breaks the rules, and from a send that failed; the first cause is the
// stream's last word. "free" means that the stream has no holder: Generate
// holds the stream until it returns, and so does each repeated send. Then the request
// is settled: children that the engine still runs are aborted, and what the
// request holds is given back.
//
// Child of a stream, guarded by Stream.mu:
//
//	| state    | send    | output  | last     | miss   | stray   |
//	| unsent   | running | -       | -        | -      | -       |
//	| running  | -       | running | finished | missed | -       |
//	| missed   | running | -       | -        | -      | running |
//	| finished | -       | -       | -        | -      | running |
//
// An answer for which the state has no transition is a stray, and ends the stream
// with a RequestError: the engine must not run that child, but does, so the child is
// aborted with the others.

// table contains the next state by state and event; 0 where there is no transition.
type table[S, E ~uint8] [][]S

// step changes a state by an event, and reports whether the table has that transition.
func (t table[S, E]) step(state *S, event E) bool {
	row := t[*state]
	if int(event) >= len(row) || row[event] == 0 {
		return false
	}
	*state = row[event]
	return true
}

type (
	clientState uint8
	clientEvent uint8
)

const (
	clientOpen clientState = iota + 1
	clientClosing
	clientClosed
)

const (
	clientClose clientEvent = iota
	clientEnded
)

var clientTable = table[clientState, clientEvent]{
	clientOpen:    {clientClose: clientClosing},
	clientClosing: {clientEnded: clientClosed},
	clientClosed:  {},
}

type (
	sessionState uint8
	sessionEvent uint8
)

const (
	sessionStarting sessionState = iota + 1
	sessionRunning
	sessionAsleep
	sessionLeaving
	sessionGone
	sessionOver
)

const (
	sessionReady sessionEvent = iota
	sessionSlept
	sessionWoke
	sessionLeave
	sessionEnd
	sessionGivenBack
)

var sessionTable = table[sessionState, sessionEvent]{
	sessionStarting: {sessionReady: sessionRunning, sessionEnd: sessionGone},
	sessionRunning:  {sessionSlept: sessionAsleep, sessionLeave: sessionLeaving, sessionEnd: sessionGone},
	sessionAsleep:   {sessionWoke: sessionRunning, sessionLeave: sessionLeaving, sessionEnd: sessionGone},
	sessionLeaving:  {sessionEnd: sessionGone},
	sessionGone:     {sessionGivenBack: sessionOver},
	sessionOver:     {},
}

type (
	streamState uint8
	streamEvent uint8
)

const (
	streamOpen streamState = iota + 1
	streamEnded
	streamSettled
)

const (
	streamEnd streamEvent = iota
	streamFree
)

var streamTable = table[streamState, streamEvent]{
	streamOpen:    {streamEnd: streamEnded},
	streamEnded:   {streamFree: streamSettled},
	streamSettled: {},
}

type (
	childState uint8
	childEvent uint8
)

const (
	childUnsent childState = iota + 1
	childRunning
	childMissed
	childFinished
)

// String is the end of a sentence about a child that must not have an output.
func (s childState) String() string {
	return []string{
		childUnsent: "was not sent yet", childRunning: "is running", childMissed: "was to be sent again",
		childFinished: "had finished",
	}[s]
}

const (
	childSend childEvent = iota
	childOutput
	childLast
	childMiss
	childStray
)

var childTable = table[childState, childEvent]{
	childUnsent:   {childSend: childRunning},
	childRunning:  {childOutput: childRunning, childLast: childFinished, childMiss: childMissed},
	childMissed:   {childSend: childRunning, childStray: childRunning},
	childFinished: {childStray: childRunning},
}
