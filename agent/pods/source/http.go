package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/strictyaml"
)

// HTTPConfig says which URL to follow.
type HTTPConfig struct {
	URL string
	// Header is sent with each request; names may be in any case.
	Header http.Header
	// Node is the node's name.
	Node string
	// Every is the time between two requests.
	Every time.Duration
	// Strict refuses answers with unknown fields, which are otherwise ignored.
	Strict bool
	Gates  manifest.Gates
	// Report receives problems; nil ignores them. It must not block.
	Report func(complaint.Problem)
}

// requestTimeout bounds one request, from dialing to the end of the body.
const requestTimeout = 10 * time.Second

// HTTP is the feed of static pods from a URL that answers with a Pod or a PodList.
//
// While the URL cannot be read or its answer is invalid, the pods of the last good answer stay. A
// pod that is refused keeps its last good version, if it had one, and does not affect the others.
// An empty answer is an empty set.
type HTTP struct {
	c      HTTPConfig
	client *http.Client
	shown  string // the URL without its password

	body []byte                           // of the last answer
	read bool                             // body is set
	good map[types.NamespacedName]*v1.Pod // last good pods, by namespace and name

	// Problems with the URL, with the answer as a whole, and with single pods of the last good answer.
	// Without a message there is no problem.
	unreadable, invalid complaint.Problem
	items               []complaint.Problem
	more                int // pods that are refused without their own problem
	ledger              ledger
}

// NewHTTP returns the feed.
func NewHTTP(c HTTPConfig) *HTTP {
	if c.Report == nil {
		c.Report = func(complaint.Problem) {}
	}
	shown := c.URL
	if u, err := url.Parse(c.URL); err == nil {
		shown = u.Redacted()
	}
	header := http.Header{}
	for name, values := range c.Header {
		for _, value := range values {
			header.Add(name, value)
		}
	}
	c.Header = header
	client := &http.Client{
		Transport: http.DefaultTransport.(*http.Transport).Clone(), Timeout: requestTimeout,
	}
	return &HTTP{c: c, client: client, shown: shown, ledger: ledger{report: c.Report}}
}

// Name implements Feed.
func (*HTTP) Name() string { return HTTPSource }

// Run implements Feed.
func (h *HTTP) Run(ctx context.Context, deliver func([]*v1.Pod)) error {
	defer h.client.CloseIdleConnections()
	tick := time.Tick(h.c.Every)
	for {
		if pods, changed := h.look(ctx); changed {
			deliver(pods)
		}
		h.ledger.now(h.findings())
		if !await.On(ctx, tick) {
			return nil
		}
	}
}

// look asks the URL. If changed is set, pods is a new set to deliver.
func (h *HTTP) look(ctx context.Context) (pods []*v1.Pod, changed bool) {
	body, err := h.get(ctx)
	if ctx.Err() != nil {
		return nil, false
	}
	h.unreadable = complaint.Problem{}
	if err != nil {
		h.unreadable = h.origin().problem(h.shown, err)
		return nil, false
	}
	if h.read && bytes.Equal(body, h.body) {
		return nil, false
	}
	h.body, h.read, h.invalid = body, true, complaint.Problem{}
	if len(bytes.TrimSpace(body)) == 0 {
		h.invalid = h.origin().problem(h.shown,
			manifest.Refuse(manifest.InvalidManifest, "the answer is empty; no pods run from it"))
		h.good, h.items, h.more = nil, nil, 0
		return []*v1.Pod{}, true
	}
	d, err := manifest.Decode(body, true, h.c.Strict)
	if err != nil {
		h.invalid = h.origin().problem(h.shown, err)
		return nil, false
	}
	return h.accept(d), true
}

// accept turns the pods of an answer into the set.
func (h *HTTP) accept(d manifest.Decoded) []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(d.Pods))
	good := map[types.NamespacedName]*v1.Pod{}
	h.items, h.more = nil, 0
	for i := range d.Pods {
		p, place := &d.Pods[i], h.shown
		if d.List {
			place = fmt.Sprintf("%s items[%d]", h.shown, i)
		}
		// The name as written: refused pods may not have their final name yet.
		key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		if err := h.origin().pod(p); err != nil {
			h.refused(place, err)
			p = h.good[key]
		}
		if p != nil {
			good[key] = p
			pods = append(pods, p)
		}
	}
	h.good = good
	if h.more > 0 {
		h.items = append(h.items, h.origin().problem(h.shown+" items",
			manifest.Refuse(manifest.FailedValidation, "%d more pods of the answer are refused", h.more)))
	}
	h.items = append(h.items, h.origin().warning(h.shown, d.Ignored))
	return pods
}

// refused records that a pod of the answer is refused; only the first few get their own problem.
func (h *HTTP) refused(place string, err error) {
	if len(h.items) == strictyaml.MaxMessages {
		h.more++
		return
	}
	h.items = append(h.items, h.origin().problem(place, err))
}

// findings returns the present problems, the worst first.
func (h *HTTP) findings() []finding {
	var out []finding
	for _, p := range slices.Concat([]complaint.Problem{h.unreadable, h.invalid}, h.items) {
		if p.Message != "" {
			out = append(out, finding{Problem: p})
		}
	}
	return out
}

func (h *HTTP) origin() origin {
	return origin{node: h.c.Node, source: HTTPSource, place: h.c.URL, gates: h.c.Gates}
}

func (h *HTTP) get(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.c.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for manifests: %w", err)
	}
	request.Header = h.c.Header.Clone()
	request.Host = request.Header.Get("Host")
	answer, err := h.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for manifests: %w", err)
	}
	body, err := readLimited(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, manifest.Refuse(manifest.Unreadable, "the server answers %s", answer.Status)
	}
	return body, nil
}
