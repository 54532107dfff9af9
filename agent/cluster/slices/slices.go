package slices

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/tools/cache"
	draclient "k8s.io/dynamic-resource-allocation/client"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/dra/places"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology"
)

const (
	// firstPause and lastPause bound the pauses after failed requests.
	firstPause, lastPause = time.Second, 5 * time.Minute
	// timeout bounds a request.
	timeout = 30 * time.Second
	// gather is the time in which several changes share one index.
	gather = 20 * time.Millisecond
	// mostDevices bounds the devices of the node.
	mostDevices = 1 << 16
	// mostReported bounds the errors of attributes that are remembered as reported.
	mostReported = 256
)

// Config says whose slices to follow. All fields but Restored are required.
type Config struct {
	Client kubernetes.Interface
	// Node is the node's name.
	Node string
	// Attributes say what devices' attributes mean, Machine is the present machine.
	Attributes places.Table
	Machine    func() *topology.Machine
	// Restored receives an element when the API server was restored from a backup.
	Restored <-chan struct{}
}

// Slices knows the devices of this node's slices. Its methods never block.
type Slices struct {
	cfg      Config
	changed  mailbox.Topic
	resource resourceclient.ResourceSliceInterface
	own      fields.Selector

	all     *kubeapi.Kept[*resourcev1.ResourceSlice]
	index   atomic.Pointer[index]
	gone    *mailbox.Box[string]
	absence complaint.Complaint[string] // why the API cannot be used; owned by the follower

	mu       sync.Mutex // guards reported
	reported map[string]bool
}

// New returns Slices without any device.
func New(c Config) *Slices {
	s := &Slices{
		cfg: c, resource: draclient.New(c.Client).ResourceSlices(),
		own:  fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, c.Node),
		all:  kubeapi.NewKept[*resourcev1.ResourceSlice](),
		gone: mailbox.New[string](), reported: map[string]bool{},
	}
	s.index.Store(&index{})
	return s
}

// Changes is published after devices changed.
func (s *Slices) Changes() mailbox.Source { return &s.changed }

// Run follows slices until ctx ends, and deletes those of drivers that are gone, as soon as registered
// reports that the API server has the node's object. usable lists the drivers that have a usable plugin:
// their slices stay.
func (s *Slices) Run(ctx context.Context, registered func() bool, usable func() []string) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { kubeapi.Again(ctx, s.cfg.Restored, s.follow) })
	parts.Go(func() { s.remove(ctx, registered, usable) })
	for await.On(ctx, s.all.Changed()) && await.For(ctx, gather) {
		next := newIndex(s.all.All(), s.index.Load(), s.cfg.Attributes)
		if next.dropped > 0 {
			klog.FromContext(ctx).Info("The node's ResourceSlices have more devices than are "+
				"followed; the places of the others are unknown", "followed", mostDevices,
				"others", next.dropped)
		}
		s.index.Store(next)
		s.changed.Publish()
	}
	return nil
}

// Place returns where a device is; the zero value: unknown. A partition without a place of its own is
// where the device is that it is part of.
func (s *Slices) Place(driver, pool, device string) claim.Place {
	return s.place(s.index.Load(), poolID{driver, pool}, device)
}

func (s *Slices) place(ix *index, of poolID, name string) claim.Place {
	d, ok := ix.pools[of].find(name)
	if !ok {
		return claim.Place{}
	}
	at := s.find(of, d)
	if known(at) {
		return at
	}
	first := true
	for _, whole := range ix.wholes(of, d, at.Parent) {
		switch there := s.find(whole.in, whole.device); {
		case !known(there):
		case first:
			first = false
			at.Nodes, at.PCI, at.Root = there.Nodes, there.PCI, there.Root
		default: // a counter set may be shared by devices in several places
			at = agreed(at, there)
		}
	}
	return at
}

// agreed leaves of a place what another one has too.
func agreed(at, other claim.Place) claim.Place {
	if at.PCI != other.PCI {
		at.PCI = ""
	}
	if at.Root != other.Root {
		at.Root = ""
	}
	if at.Nodes != other.Nodes {
		at.Nodes = topology.NodeSet{}
	}
	return at
}

func known(at claim.Place) bool { return !at.Nodes.IsEmpty() || at.PCI != "" || at.Root != "" }

// find reads a device's attributes, and logs once what is wrong with them.
func (s *Slices) find(in poolID, d *resourcev1.Device) claim.Place {
	at, wrong := s.cfg.Attributes.Find(s.cfg.Machine(), deviceOf(in, d))
	for _, text := range wrong {
		s.tell(text)
	}
	return at
}

func (s *Slices) tell(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reported[text] || len(s.reported) >= mostReported {
		return
	}
	s.reported[text] = true
	klog.Background().Info("Where a device is cannot be told from its ResourceSlice", "why", text)
}

// Device is a device with its place.
type Device struct {
	places.Device
	Place claim.Place
}

// All lists the devices by driver, pool and name.
func (s *Slices) All() []Device {
	ix := s.index.Load()
	var out []Device
	for _, in := range ix.order() {
		for _, d := range ix.pools[in].sorted() {
			out = append(out, Device{deviceOf(in, d), s.place(ix, in, d.Name)})
		}
	}
	return out
}

func deviceOf(in poolID, d *resourcev1.Device) places.Device {
	return places.Device{Driver: in.driver, Pool: in.name, Name: d.Name, Attributes: d.Attributes,
		Capacity: d.Capacity}
}

// follow lists and watches until ctx ends. Where the API is not served, or the node may not use it,
// nothing but one small request is made from time to time.
func (s *Slices) follow(ctx context.Context) {
	s.all.Distrust()
	var pause time.Duration
	for ctx.Err() == nil {
		if err := s.served(ctx); err != nil {
			pause = await.Pauses{First: firstPause, Last: lastPause}.Next(pause)
			if apierrors.IsNotFound(err) {
				pause = lastPause
			}
			s.complain(ctx, err)
			await.For(ctx, pause)
			continue
		}
		pause = 0
		s.complain(ctx, nil)
		s.reflect(ctx)
	}
}

// reflect keeps all slices until ctx ends or the API is no longer served.
func (s *Slices) reflect(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := func(err error) {
		if apierrors.IsNotFound(err) {
			cancel()
		}
	}
	cache.NewReflectorWithOptions(kubeapi.Selected(s.cfg.Client, s.resource, s.own, failed),
		&resourcev1.ResourceSlice{}, s.all.Store(),
		cache.ReflectorOptions{Name: "resource slices of the node"},
	).RunWithContext(ctx)
}

// served returns why slices cannot be listed; nil: they can, or the API server does not answer.
func (s *Slices) served(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := s.resource.List(ctx, metav1.ListOptions{FieldSelector: s.own.String(), Limit: 1})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return err
	}
	return nil
}

func (s *Slices) complain(ctx context.Context, err error) {
	var why string
	switch {
	case apierrors.IsNotFound(err):
		why = "the API server has no resource.k8s.io; resource claims cannot be used in this cluster"
	case err != nil:
		why = requests.Short(err).Error() + "; give the group system:nodes the verbs list, watch " +
			"and deletecollection on resourceslices.resource.k8s.io"
	}
	switch {
	case !s.absence.Changes(why):
	case why == "":
		klog.FromContext(ctx).Info("The node's ResourceSlices are followed")
	default:
		klog.FromContext(ctx).Info("The node's ResourceSlices are not followed", "why", why)
	}
}
