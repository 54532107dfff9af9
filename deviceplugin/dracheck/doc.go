// Package dracheck checks a driver of resource claims (DRA) that runs: registration, repeated,
// concurrent and cancelled calls, CDI ids, ResourceSlices and health. "numalet plugin check --dra"
// runs it. Results are those of package check.
//
// A check is an entry of a table. It is skipped if the failure of another one makes it meaningless,
// so that a driver with one mistake fails one check.
package dracheck
