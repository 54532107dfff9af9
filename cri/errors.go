package cri

import "time"

// Reasons why a container or a sandbox is not running yet. They are the kubelet's: they appear as
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

// StartError says why a container or sandbox could not be started, in the words that the pod's
// status shows.
type StartError struct {
	Reason  string
	Message string
	// Err is the cause, if there is one beyond Message.
	Err error
	// RetryAt is when trying again makes sense; zero when the next sync may try.
	RetryAt time.Time
}

func (e *StartError) Error() string { return e.Reason + ": " + e.Message }

func (e *StartError) Unwrap() error { return e.Err }

// ObjectError is that an object of the API server is missing, or cannot be had. What needs it may
// be tried again as soon as the object has changed.
type ObjectError struct{ Err error }

func (e *ObjectError) Error() string { return e.Err.Error() }

func (e *ObjectError) Unwrap() error { return e.Err }

// ConfigError marks err as a mistake in the container's spec.
func ConfigError(err error) error {
	return &StartError{Reason: ReasonCreateContainerConfig, Message: err.Error(), Err: err}
}

// sandboxError marks err as a mistake in what the spec asks of the sandbox.
func sandboxError(err error) error {
	return &StartError{Reason: ReasonConfigPodSandbox, Message: err.Error(), Err: err}
}
