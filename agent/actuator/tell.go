package actuator

import (
	"errors"

	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/volume"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// mountFailed is the reason of a pod whose volumes are not as they should be, and of the events.
const mountFailed = "FailedMount"

// about tells what befalls a pod while something is made for it.
type about struct {
	pod  *v1.Pod
	tell Tell
	// over is why what is made is not wanted any more, if so: what fails then is not told.
	over func() error
}

func (a about) warn(reason, message string) {
	if a.over() == nil {
		a.tell.Event(a.pod, v1.EventTypeWarning, reason, message)
	}
}

// failed tells why a container was not started.
func (a about) failed(of podspec.Ref, why string) {
	if a.over() == nil {
		a.tell.Container(of, v1.EventTypeWarning, "Failed", "Error: "+why)
	}
}

// refused tells what the runtime has against a container, in its own words, and what may be the
// cause.
func (a about) refused(of podspec.Ref, reason string, err error, cause string) error {
	message := status.Convert(err).Message() + cause
	a.failed(of, message)
	return &cri.StartError{Reason: reason, Message: message, Err: err}
}

// dns tells what of the pod's resolver configuration is not as it asks for.
func (a about) dns(problems []cri.DNSProblem) {
	for _, p := range problems {
		a.warn(p.Reason, p.Message)
		if p.Node != "" {
			a.tell.Node(v1.EventTypeWarning, p.Reason, p.Node)
		}
	}
}

// volumes is an event for each of the errors that were joined.
func (a about) volumes(err error) {
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	for _, one := range errs {
		reason := mountFailed
		if _, device := errors.AsType[*volume.MapError](one); device {
			reason = "FailedMapVolume"
		}
		a.warn(reason, one.Error())
	}
}

// reasonOf is the reason that the status shows for an error.
func reasonOf(err error) string {
	if why, ok := errors.AsType[*cri.StartError](err); ok {
		return why.Reason
	}
	return err.Error()
}

// messageOf is an error without the reason that the status shows beside it.
func messageOf(err error) string {
	if why, ok := errors.AsType[*cri.StartError](err); ok {
		return why.Message
	}
	return err.Error()
}
