package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Trouble disturbs a share of the requests. The zero value disturbs none.
type Trouble struct {
	// Share is the share of requests affected: 1 is all.
	Share float64
	// Which is the kind of requests affected; All is both.
	Which Which
	// Answer is the status that replaces the API server's; 0: the server's own. With Late the
	// requests take effect all the same.
	Answer int
	Late   bool
	// Hang blocks requests until the trouble is over. Slow is a pause before each part of an
	// answer, and Lasts how long an answer may take before it is interrupted.
	Hang        bool
	Slow, Lasts time.Duration
}

// Which is a kind of requests.
type Which int

// The kinds of requests.
const (
	All Which = iota
	Watches
	Others
)

func (t Trouble) of(watch bool) bool {
	return t.Which == All || (t.Which == Watches) == watch
}

// String describes the trouble.
func (t Trouble) String() string {
	out := fmt.Sprintf("%.0f %% of ", 100*t.Share)
	out += [...]string{"all requests", "watches", "other requests"}[t.Which]
	if t.Answer != 0 {
		out += fmt.Sprintf(" get %d", t.Answer)
	}
	if t.Late {
		out += " but take effect"
	}
	if t.Hang {
		out += " hang"
	}
	if t.Slow > 0 {
		out += " are slow by " + t.Slow.String()
	}
	if t.Lasts > 0 {
		out += " are broken off after " + t.Lasts.String()
	}
	return out
}

// Say answers one request, not a watch, with the status.
func (t Trouble) Say(w http.ResponseWriter) { t.answer(w, false) }

// answer writes what the API server would with this status. A watch gets it as an event, as when
// its version is too old.
func (t Trouble) answer(w http.ResponseWriter, watch bool) {
	status := t.status()
	w.Header().Set("Content-Type", "application/json")
	if details := status.Details; details != nil && details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(details.RetryAfterSeconds)))
	}
	var body any = status
	if watch && t.Answer == http.StatusGone {
		body = map[string]any{"type": "ERROR", "object": status}
	} else {
		w.WriteHeader(t.Answer)
	}
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}

func (t Trouble) status() metav1.Status {
	const why = "this is a test"
	because := errors.New(why)
	things := schema.GroupResource{Resource: "things"}
	err := map[int]*apierrors.StatusError{
		http.StatusTooManyRequests:     apierrors.NewTooManyRequests(why, 1),
		http.StatusInternalServerError: apierrors.NewInternalError(because),
		http.StatusConflict:            apierrors.NewConflict(things, "thing", because),
		http.StatusGone:                apierrors.NewResourceExpired(why),
		http.StatusServiceUnavailable:  apierrors.NewServiceUnavailable(why),
		http.StatusGatewayTimeout:      apierrors.NewServerTimeout(things, "do", 1),
	}[t.Answer]
	if err == nil {
		err = apierrors.NewGenericServerResponse(t.Answer, "do", things, "thing", why, 0, true)
	}
	out := err.ErrStatus
	out.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return out
}
