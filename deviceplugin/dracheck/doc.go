// Package dracheck checks a driver of resource claims (DRA) that runs, or that it starts: registration,
// repeated, concurrent and cancelled calls, restarts of either side, CDI ids, ResourceSlices and
// health. "numalet plugin check --dra" runs it. Results and transcripts are those of package check.
//
// A check is an entry of a table. It is skipped if the failure of another one makes it meaningless,
// so that a driver with one mistake fails one check.
package dracheck
