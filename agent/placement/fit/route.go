package fit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/numalet/numalet/agent/placement/admission"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/dra/places"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/route"
	"github.com/numalet/numalet/topology"
)

// Bounds of a question, whose time the node's pods need too.
const (
	maxQuestion     = 1 << 20 // bytes
	maxAsked        = 1000    // pods in one question
	questionTimeout = 30 * time.Second
)

// handler answers which of the pods in a request's body would be admitted now, one request at a
// time.
type handler struct {
	queue   *admission.Queue
	plugins *devicemanager.Plugins
	place   Placer
	strict  bool // refuse manifests with unknown fields
	gates   manifest.Gates
	slot    chan struct{} // capacity 1
}

// Placer says where the devices of claims are on this node.
type Placer struct {
	Table   places.Table
	Machine func() *topology.Machine
	// Place knows the node's slices; nil: there are none.
	Place func(driver, pool, device string) claim.Place
}

// Route returns the route for questions about pods, whose manifests are too long for a URL.
// Questions change nothing. If strict, unknown fields are refused, as in manifests.
func Route(queue *admission.Queue, plugins *devicemanager.Plugins, place Placer,
	strict bool, gates manifest.Gates) route.Route {
	return route.Route{
		Method: http.MethodPost, Pattern: "/debug/fit",
		Handler: &handler{
			queue: queue, plugins: plugins, place: place, strict: strict, gates: gates,
			slot: make(chan struct{}, 1),
		},
	}
}

// ServeHTTP answers a POST with manifests. The URL may have the parameters count, a number or
// "max", and ask-plugins=true.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), questionTimeout)
	defer cancel()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		http.Error(w, fmt.Sprintf("the question is larger than %d bytes; ask about fewer pods at "+
			"once", large.Limit), http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		return // the client has gone
	}
	question, warnings, err := h.read(ctx, body, r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := h.answer(ctx, question)
	if err != nil {
		http.Error(w, fmt.Sprintf("%v; ask about less at once, or later", err),
			http.StatusServiceUnavailable)
		return
	}
	answer.Warnings = warnings
	route.WriteJSON(w, answer)
}

func (h *handler) read(ctx context.Context, body []byte, options url.Values) (
	Question, []string, error) {
	q, err := ParseCount(options.Get("count"))
	if err != nil {
		return q, nil, err
	}
	manifest, err := manifest.Read(body, h.strict, h.gates)
	if err != nil {
		return q, nil, err
	}
	if len(manifest.Pods) > maxAsked {
		return q, nil, fmt.Errorf("%d pods are asked about; at most %d can be at once",
			len(manifest.Pods), maxAsked)
	}
	q.Pods = manifest.Pods
	q.Claims = NewClaims(manifest, h.place.Table, h.place.Machine(), h.place.Place)
	if text := options.Get("ask-plugins"); text != "" {
		ask, err := strconv.ParseBool(text)
		if err != nil {
			return q, nil, fmt.Errorf("ask-plugins=%s: want true or false", text)
		}
		if ask {
			q.Ask = func(a allocation.Ask) ([]string, error) { // as admission does
				return h.plugins.Preferred(ctx, a.PreferredRequest)
			}
		}
	}
	return q, manifest.Warnings, nil
}

func (h *handler) answer(ctx context.Context, q Question) (Answer, error) {
	if !await.Send(ctx, h.slot, struct{}{}) {
		return Answer{}, fmt.Errorf("wait for other questions: %w", ctx.Err())
	}
	defer func() { <-h.slot }()
	snapshot, standing, err := h.queue.Standing(ctx, q.Pods)
	if err != nil {
		return Answer{}, err
	}
	q.Standing = standing
	return Place(ctx, snapshot, q)
}
