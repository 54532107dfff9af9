// Package logs keeps the logs of running containers from filling the disk. A log that has reached
// its size is renamed, and the runtime told to write to a new file of the old name:
//
//	0.log                        what the runtime writes to
//	0.log.20260102-150405        the newest before it, as it was written
//	0.log.20260102-120000.gz     older ones, compressed
//
// The files are the only record of how far a rotation came, so that one that a crash cut off is
// ended by the next look: a log that is missing is opened again, what was being compressed is
// compressed anew. No line is lost: until the runtime has opened the new file it writes to the
// renamed one, and that is compressed only when it is not the newest any more.
package logs
