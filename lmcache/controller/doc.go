// Package controller is LMCache's cache controller (0.5.6; 0.5.7 has it as lmcache.inprocess), on package
// directory: workers of LMCache's in-process engine connect to it unchanged, and orchestrators ask it.
//
// # Sockets
//
// [Server.ServePull] takes what workers push: DeRegisterMsg, BatchedKVOperationMsg, FullSyncBatchMsg,
// FullSyncEndMsg, and KVAdmitMsg and KVEvictMsg. [Server.ServeReply] answers RegisterMsg,
// BatchedP2PLookupMsg, FullSyncStartMsg and FullSyncStatusMsg of workers, and LookupMsg, QueryInstMsg,
// QueryWorkerInfoMsg, ClearMsg, PinMsg and HealthMsg of orchestrators. [Server.ServeHeartbeat] answers
// HeartbeatMsg, and asks for a full synchronisation in the answer. CompressMsg, DecompressMsg, MoveMsg and
// CheckFinishMsg get an ErrorMsg, as does what can't be read.
//
// ClearMsg, PinMsg and HealthMsg go on to the workers, at the addresses with which they have registered. So
// who may register decides where the controller connects to: as LMCache's own, it has no authentication.
//
// # What differs from LMCache's
//
// An instance holds a prefix if all its workers do, from the first chunk on; LMCache's answers with the last
// chunk of each. A lost report, also the first one, makes the controller ask for a full synchronisation;
// LMCache's counts it. A full synchronisation is complete when all batches have come. Orchestrators are
// answered on the socket for replies; LMCache's answers them only in its own process. What is wrong does not
// end a socket.
//
// # Lifetimes and concurrency
//
// A Serve method returns when [Server.Close] is called, which ends connections and waits for them. Who makes
// the directory calls its Expire. Messages, connections, commands and the memory of messages and large
// answers are bounded. A refusal wraps fs.ErrInvalid, is counted ([Server.Counts]), and the log gets one line
// a minute.
package controller
