package objects

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/internal/oneline"
)

// Whatever an API server says, a pod's status has a line of it, and what it means stays known.
func TestShort(t *testing.T) {
	said := errors.New(strings.Repeat("denied by a webhook\n", 100_000))
	for name, ask := range map[string]func() error{
		"asked once": func() error {
			_, err := insist(t.Context(), apierrors.IsForbidden, func() (*v1.Secret, error) {
				return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
					Message: said.Error(), Code: http.StatusNotFound,
					Reason: metav1.StatusReasonNotFound}}
			})
			if !apierrors.IsNotFound(err) {
				t.Errorf("the kind of the error is lost: %.80v", err)
			}
			return err
		},
		"followed": func() error {
			var f follower
			e := &entry{}
			f.missed(e, said)
			return e.err
		},
	} {
		err := ask()
		if text := err.Error(); len(text) > oneline.Most || strings.Contains(text, "\n") ||
			!strings.HasPrefix(text, "denied by a webhook denied") {
			t.Errorf("%s: %d bytes: %.80q", name, len(text), text)
		}
	}
	if list := utilerrors.NewAggregate([]error{io.EOF, io.EOF}); requests.Short(list) == nil {
		t.Error("a list of errors became none")
	}
	if requests.Short(nil) != nil {
		t.Error("no error became one")
	}
}
