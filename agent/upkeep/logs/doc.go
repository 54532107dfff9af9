// Package logs keeps the logs of running containers from filling the disk. A log that has reached
// its maximum size is renamed, and the runtime opens a new file under the old name:
//
//	0.log                        what the runtime writes to
//	0.log.20260102-150405        the newest before it, as it was written
//	0.log.20260102-120000.gz     older ones, compressed
//
// The files alone show how far a rotation came, so the next look completes one that was
// interrupted: a missing log is opened again, and a half compressed file is compressed again. No
// line is lost: until the runtime has opened the new file, it writes to the renamed one, which is
// compressed only when it is no longer the newest.
package logs
