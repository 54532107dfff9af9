// Package fit answers which pods would be admitted, and how many, without admitting any, and what
// would become of resizes of pods that run. It places them one after the other on a snapshot of
// admission's data, with admission's own decision. It is
// pure except for questions to plugins; route.go serves it over HTTP.
package fit
