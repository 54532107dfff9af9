package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/fit"
	"github.com/numalet/numalet/agent/source"
)

// Bounds of a question: it takes time that the node's pods need, too.
const (
	maxQuestion     = 1 << 20 // bytes
	maxAsked        = 1000    // pods in one question
	questionTimeout = 30 * time.Second
)

// fitting answers which of the pods in a request's body would be admitted as things are, one
// request at a time.
type fitting struct {
	queue   *admission.Queue
	plugins admission.Plugins
	turn    chan struct{} // capacity 1
}

func newFitting(queue *admission.Queue, plugins admission.Plugins) *fitting {
	return &fitting{queue: queue, plugins: plugins, turn: make(chan struct{}, 1)}
}

// ServeHTTP takes manifests. Parameters of the URL are count, a number or "max", and
// ask-plugins=true.
func (f *fitting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), questionTimeout)
	defer cancel()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		http.Error(w, fmt.Sprintf("the question is larger than %d bytes; ask about fewer pods at "+
			"once", large.Limit), http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		return // the client is gone
	}
	question, warnings, err := f.read(ctx, body, r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := f.answer(ctx, question)
	if err != nil {
		http.Error(w, fmt.Sprintf("%v; ask about less at once, or later", err),
			http.StatusServiceUnavailable)
		return
	}
	answer.Warnings = warnings
	asJSON(func() any { return answer }).ServeHTTP(w, r)
}

func (f *fitting) read(ctx context.Context, body []byte, options url.Values) (
	fit.Question, []string, error) {
	q, err := fit.ParseCount(options.Get("count"))
	if err != nil {
		return q, nil, err
	}
	manifest, err := source.Read(body)
	if err != nil {
		return q, nil, err
	}
	if len(manifest.Pods) > maxAsked {
		return q, nil, fmt.Errorf("%d pods are asked about; at most %d can be at once",
			len(manifest.Pods), maxAsked)
	}
	q.Pods = manifest.Pods
	if text := options.Get("ask-plugins"); text != "" {
		ask, err := strconv.ParseBool(text)
		if err != nil {
			return q, nil, fmt.Errorf("ask-plugins=%s: want true or false", text)
		}
		if ask {
			q.Ask = f.asker(ctx)
		}
	}
	return q, manifest.Warnings, nil
}

// asker asks plugins for their preference, as admission does.
func (f *fitting) asker(ctx context.Context) admission.Ask {
	return func(a allocation.Ask) ([]string, error) {
		return f.plugins.Preferred(ctx, a.PreferredRequest)
	}
}

func (f *fitting) answer(ctx context.Context, q fit.Question) (fit.Answer, error) {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return fit.Answer{}, fmt.Errorf("wait for other questions: %w", ctx.Err())
	}
	snapshot, err := f.queue.Snapshot(ctx)
	if err != nil {
		return fit.Answer{}, err
	}
	return fit.Place(ctx, snapshot, q)
}
