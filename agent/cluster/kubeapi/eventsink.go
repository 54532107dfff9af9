package kubeapi

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/numalet/numalet/internal/oneline"
)

// EventSink writes events with a client. Errors of the API server become one line, as the recorder
// logs them.
func EventSink(client kubernetes.Interface) record.EventSink {
	return eventSink{&typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")}}
}

type eventSink struct{ api *typedv1.EventSinkImpl }

// Create implements record.EventSink.
func (s eventSink) Create(e *v1.Event) (*v1.Event, error) {
	got, err := s.api.Create(e)
	return got, shortAnswer(err)
}

// Update implements record.EventSink.
func (s eventSink) Update(e *v1.Event) (*v1.Event, error) {
	got, err := s.api.Update(e)
	return got, shortAnswer(err)
}

// Patch implements record.EventSink.
func (s eventSink) Patch(e *v1.Event, change []byte) (*v1.Event, error) {
	got, err := s.api.Patch(e, change)
	return got, shortAnswer(err)
}

// shortAnswer keeps the type of an API server's error: the recorder tries again unless the error is
// a StatusError itself.
func shortAnswer(err error) error {
	said, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return err
	}
	out := *said
	out.ErrStatus.Message = oneline.Of(said.ErrStatus.Message)
	return &out
}
