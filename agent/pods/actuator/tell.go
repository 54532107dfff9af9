package actuator

import (
	"errors"

	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// mountFailed is the reason of events and of the status of a pod whose volumes could not be made.
const mountFailed = "FailedMount"

// about makes events of a pod while something is made for it.
type about struct {
	pod  *v1.Pod
	tell Tell
	// over returns an error once the action was cancelled: later failures make no events.
	over func() error
}

func (a about) warn(reason, message string) {
	if a.over() == nil {
		a.tell.Event(a.pod, v1.EventTypeWarning, reason, message)
	}
}

// failed makes an event of a container that was not started.
func (a about) failed(of podspec.Ref, why string) {
	if a.over() == nil {
		a.tell.Container(of, v1.EventTypeWarning, "Failed", "Error: "+why)
	}
}

// refused makes an event of a container that the runtime refused, in the runtime's words, with the
// likely cause.
func (a about) refused(of podspec.Ref, reason string, err error, cause string) error {
	message := status.Convert(err).Message() + cause
	a.failed(of, message)
	return &cri.StartError{Reason: reason, Message: message, Err: err}
}

// dns makes an event of each entry that the pod's resolver configuration leaves out.
func (a about) dns(problems []cri.DNSProblem) {
	for _, p := range problems {
		a.warn(p.Reason, p.Message)
		if p.Node != "" {
			a.tell.Node(v1.EventTypeWarning, p.Reason, p.Node)
		}
	}
}

// volumes makes an event of each of the joined errors that is news.
func (a about) volumes(err error) {
	for _, one := range cri.Parts(err) {
		if volume.IsUsual(one) {
			continue
		}
		reason := mountFailed
		if _, device := errors.AsType[*volume.MapError](one); device {
			reason = "FailedMapVolume"
		}
		a.warn(reason, one.Error())
	}
}

// reasonOf returns the reason that the status shows for an error.
func reasonOf(err error) string {
	if why, ok := errors.AsType[*cri.StartError](err); ok {
		return why.Reason
	}
	return err.Error()
}

// messageOf returns the error's text without the reason, which the status shows beside it.
func messageOf(err error) string {
	if why, ok := errors.AsType[*cri.StartError](err); ok {
		return why.Message
	}
	return err.Error()
}
