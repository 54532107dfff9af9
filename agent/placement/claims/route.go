package claims

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/numalet/numalet/deviceplugin/failure"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/internal/route"
)

// maxQuestion bounds a question in bytes.
const maxQuestion = 4 << 10

// Question names a claim.
type Question struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// ListRoute lists the claims, with what is known of failures; it changes nothing. m may be nil: there are
// none.
func ListRoute(m *Manager, failures func() map[failure.Device]failure.Outlook) route.Route {
	return route.JSON("/claims", func() any {
		if m == nil {
			return []Row{}
		}
		rows := m.List()
		addFailures(rows, failures())
		return rows
	})
}

// Routes have claims forgotten: POST of a Question, answered with the Row that was forgotten.
func Routes(m *Manager) []route.Route {
	return []route.Route{{Method: http.MethodPost, Pattern: "/claims/forget",
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q, err := readQuestion(http.MaxBytesReader(w, r.Body, maxQuestion))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			var row Row
			if err = ErrUnknown; m != nil {
				row, err = m.Forget(q.Namespace, q.Name)
			}
			switch {
			case errors.Is(err, ErrUnknown):
				http.Error(w, err.Error(), http.StatusNotFound)
			case err != nil:
				http.Error(w, err.Error(), http.StatusConflict)
			default:
				route.WriteJSON(w, row)
			}
		})}}
}

// readQuestion is strict: a field that is not known might have named another claim.
func readQuestion(body io.Reader) (q Question, err error) {
	raw, err := io.ReadAll(body)
	if err != nil {
		return q, fmt.Errorf("read the question: %w", err)
	}
	if q, err = strict[Question](raw); err != nil {
		return q, fmt.Errorf("the question: %w", err)
	}
	if len(validation.IsDNS1123Label(q.Namespace)) > 0 ||
		len(validation.IsDNS1123Subdomain(q.Name)) > 0 {
		return q, fmt.Errorf("%s is not the namespace and name of a ResourceClaim",
			oneline.Cut(q.Namespace+"/"+q.Name, 256))
	}
	return q, nil
}
