package cri

import (
	"time"

	"github.com/numalet/numalet/internal/await"
)

// Reasons why a container or a sandbox is not running yet. They are the kubelet's and appear as
// state.waiting.reason in the pod's status.
const (
	ReasonCreateContainerConfig = "CreateContainerConfigError"
	ReasonCreateContainer       = "CreateContainerError"
	ReasonPreStartHook          = "PreStartHookError"
	ReasonPostStartHook         = "PostStartHookError"
	ReasonRunContainer          = "RunContainerError"
	ReasonCrashLoopBackOff      = "CrashLoopBackOff"
	ReasonKillContainer         = "KillContainerError"

	ReasonImagePullBackOff    = "ImagePullBackOff"
	ReasonImageInspect        = "ImageInspectError"
	ReasonImagePull           = "ErrImagePull"
	ReasonImageNeverPull      = "ErrImageNeverPull"
	ReasonInvalidImageName    = "InvalidImageName"
	ReasonRegistryUnavailable = "RegistryUnavailable"
	ReasonSignatureValidation = "SignatureValidationFailed"

	ReasonCreatePodSandbox = "CreatePodSandboxError"
	ReasonConfigPodSandbox = "ConfigPodSandboxError"
	ReasonKillPodSandbox   = "KillPodSandboxError"
)

// StartError says why a container or sandbox could not be started, in the words of the pod's
// status.
type StartError struct {
	Reason  string
	Message string
	// Err is the cause, if there is one beyond Message.
	Err error
	// RetryAt is the earliest time of a useful retry; zero: the next sync may try.
	RetryAt time.Time
}

func (e *StartError) Error() string { return e.Reason + ": " + e.Message }

func (e *StartError) Unwrap() error { return e.Err }

// ObjectError reports that an API object is missing or cannot be read. The action that needs it may
// be retried as soon as the object changes.
type ObjectError struct{ Err error }

func (e *ObjectError) Error() string { return e.Err.Error() }

func (e *ObjectError) Unwrap() error { return e.Err }

// PausedError reports that what failed is not tried again before a time.
type PausedError struct {
	Err   error
	Until time.Time
	// Repeated: it was not tried, since the last try failed a short time ago.
	Repeated bool
}

func (e *PausedError) Error() string { return e.Err.Error() }

func (e *PausedError) Unwrap() error { return e.Err }

// PausedUntil returns the earliest time at which something may be tried again, of all that an error
// joins; zero: it names none.
func PausedUntil(err error) (at time.Time) {
	switch e := err.(type) {
	case *PausedError:
		return e.Until
	case interface{ Unwrap() error }:
		return PausedUntil(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			at = await.Earlier(at, PausedUntil(one))
		}
	}
	return at
}

// Parts returns the errors that one joins, or the error itself; nil: none.
func Parts(err error) []error {
	if joined, is := err.(interface{ Unwrap() []error }); is {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// ConfigError marks err as a mistake in the container's spec.
func ConfigError(err error) error {
	return &StartError{Reason: ReasonCreateContainerConfig, Message: err.Error(), Err: err}
}

// sandboxError marks err as a mistake in what the spec asks of the sandbox.
func sandboxError(err error) error {
	return &StartError{Reason: ReasonConfigPodSandbox, Message: err.Error(), Err: err}
}
