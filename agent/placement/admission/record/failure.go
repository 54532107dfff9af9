package record

import "errors"

// ErrCommit marks an error of the store, as opposed to one of a plugin.
var ErrCommit = errors.New("record the assignment")

// CallError is an error of a plugin, in the plugin's own words.
type CallError struct {
	Resource string
	Err      error
}

func (e *CallError) Error() string { return e.Err.Error() }

func (e *CallError) Unwrap() error { return e.Err }

// PrepareError is an error of preparing the pod's claims, which is tried again.
type PrepareError struct{ Err error }

func (e *PrepareError) Error() string {
	return "Failed to prepare dynamic resources: prepare dynamic resources: " + e.Err.Error()
}

func (e *PrepareError) Unwrap() error { return e.Err }
