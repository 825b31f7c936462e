// Package leasetable keeps the leases of a memory level in a file <name>.leases beside its segment, so that they
// survive a kill of the process. The section Leases of docs/format.md describes every byte.
//
// The table has a record for each lease, and one for each object that a lease has: pinned, or reserved.
// A record becomes valid by one store, which is the last, and free by one store. So a process that is killed at any
// instruction leaves every record as it was or as it should be. What is neither was written by something else:
// [Table.Damaged].
//
// # Order
//
// The caller leases an object in the store before its record is made, and drops the record before it gives
// the object up. A lease ends with its own record; records of objects without a lease mean nothing.
//
// # Locks
//
// Only the writer of the segment touches the file; the lock of the sidecar is its lock. The methods of a
// Table must be serialized. They touch the file first and Go state last: a caller that catches the fault of a
// file that was cut short finds the table unchanged.
//
// See docs/decisions.md, "Reservations survive the process, in the table of leases".
package leasetable
