package admission

import "errors"

// errCommit marks an error of the store, as opposed to one of a plugin.
var errCommit = errors.New("record the assignment")

// callError is an error of a plugin, in the plugin's own words.
type callError struct {
	resource string
	err      error
}

func (e *callError) Error() string { return e.err.Error() }

func (e *callError) Unwrap() error { return e.err }

// prepareError is an error of preparing the pod's claims, which is tried again.
type prepareError struct{ err error }

func (e *prepareError) Error() string {
	return "Failed to prepare dynamic resources: prepare dynamic resources: " + e.err.Error()
}

func (e *prepareError) Unwrap() error { return e.err }
