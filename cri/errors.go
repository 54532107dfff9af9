package cri

import "time"

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

// ConfigError marks err as a mistake in the container's spec.
func ConfigError(err error) error {
	return &StartError{Reason: ReasonCreateContainerConfig, Message: err.Error(), Err: err}
}

// sandboxError marks err as a mistake in what the spec asks of the sandbox.
func sandboxError(err error) error {
	return &StartError{Reason: ReasonConfigPodSandbox, Message: err.Error(), Err: err}
}
