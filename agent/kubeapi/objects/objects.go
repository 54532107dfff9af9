package objects

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/cri"
)

const (
	// maxPerPod is how many config maps and secrets one pod may use: each is a watch.
	maxPerPod = 500
	// defaultPeriod is after how long an object is read again that is not watched.
	defaultPeriod = time.Minute
	// defaultWait is how long one who asks waits, and patience how long once it is known that the
	// API server refuses.
	defaultWait = 10 * time.Second
	patience    = time.Second
)

// Config is what objects come from.
type Config struct {
	Client kubernetes.Interface
	// Strategy is configMapAndSecretChangeDetectionStrategy; "" is Watch.
	Strategy kubeletconfig.ResourceChangeDetectionStrategy
	// Period is after how long an object is read again that is not watched; 0: a minute.
	Period time.Duration
	// Wait is how long one who asks waits at most; 0: 10 s.
	Wait time.Duration
	// Changed is told of each pod that would get another answer now than it got before. It must not
	// block.
	Changed func(pod types.UID)
	// Node is this node's object, nil as long as it is not known.
	Node func() *v1.Node
	// Tell is told what happens to a pod's certificates. It must not block.
	Tell func(pod *v1.Pod, eventType, reason, message string)
}

// Objects has the objects of all pods of the node. Its methods may be called from anywhere, and
// answer once Run works.
type Objects struct {
	cfg      Config
	tokens   tokens
	anchors  anchors
	classes  classes
	services *services
	// certificates are those that signers issued for pods.
	certificates podCertificates

	mu      sync.Mutex // guards what follows, and the entries
	ctx     context.Context
	entries map[key]*entry
	uses    map[types.UID]map[key]bool
	// followers are the goroutines of the entries and of the services.
	followers sync.WaitGroup
}

// New returns objects that are followed by Run.
func New(cfg Config) *Objects {
	cfg.Strategy = cmp.Or(cfg.Strategy, kubeletconfig.WatchChangeDetectionStrategy)
	cfg.Period = cmp.Or(cfg.Period, defaultPeriod)
	cfg.Wait = cmp.Or(cfg.Wait, defaultWait)
	if cfg.Changed == nil {
		cfg.Changed = func(types.UID) {}
	}
	if cfg.Node == nil {
		cfg.Node = func() *v1.Node { return nil }
	}
	if cfg.Tell == nil {
		cfg.Tell = func(*v1.Pod, string, string, string) {}
	}
	return &Objects{
		cfg: cfg, services: newServices(),
		entries: map[key]*entry{}, uses: map[types.UID]map[key]bool{},
	}
}

// Run follows objects until ctx ends.
func (o *Objects) Run(ctx context.Context) error {
	o.mu.Lock()
	o.ctx = ctx
	for _, e := range o.entries {
		o.followLocked(e)
	}
	if o.services.wanted {
		o.followServicesLocked()
	}
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	o.ctx = nil // nothing is followed from now on
	o.mu.Unlock()
	o.followers.Wait()
	return nil
}

// Begin says that the pod is about to be made: what its volumes and containers name is followed
// from now on, so that it is known sooner.
func (o *Objects) Begin(pod *v1.Pod) error {
	for k := range references(pod) {
		if _, err := o.use(pod.UID, k); err != nil {
			return err
		}
	}
	return nil
}

// Release says that nothing of the pod is left that uses objects.
func (o *Objects) Release(pod types.UID) {
	o.tokens.forget(pod)
	o.certificates.forget(pod)
	o.mu.Lock()
	defer o.mu.Unlock()
	for k := range o.uses[pod] {
		e := o.entries[k]
		delete(e.told, pod)
		if len(e.told) == 0 {
			e.stopLocked()
			delete(o.entries, k)
		}
	}
	delete(o.uses, pod)
}

// ConfigMap is the one of that name in the pod's namespace. The error is a *cri.ObjectError.
func (o *Objects) ConfigMap(ctx context.Context, pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	found, err := o.get(ctx, pod.UID, key{configMaps, pod.Namespace, name})
	if err != nil {
		return nil, &cri.ObjectError{Err: err}
	}
	return found.(*v1.ConfigMap), nil
}

// Secret is the one of that name in the pod's namespace. The error is a *cri.ObjectError.
func (o *Objects) Secret(ctx context.Context, pod *v1.Pod, name string) (*v1.Secret, error) {
	found, err := o.get(ctx, pod.UID, key{secrets, pod.Namespace, name})
	if err != nil {
		return nil, &cri.ObjectError{Err: err}
	}
	return found.(*v1.Secret), nil
}

// get waits until the object is known.
func (o *Objects) get(ctx context.Context, pod types.UID, k key) (object, error) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Wait)
	defer cancel()
	e, err := o.use(pod, k)
	if err != nil {
		return nil, err
	}
	if o.stale(e, pod) {
		if err := o.read(ctx, e); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	o.await(ctx, e)
	o.mu.Lock()
	defer o.mu.Unlock()
	e.told[pod] = true
	switch {
	case e.known && e.refused != nil:
		return nil, e.refused
	case e.known && e.object == nil:
		return nil, apierrors.NewNotFound(v1.Resource(string(k.kind)), k.name)
	case e.known:
		return e.object, nil
	case e.err != nil:
		return nil, fmt.Errorf("failed to sync %s cache: %w", k.kind, e.err)
	default:
		return nil, fmt.Errorf("failed to sync %s cache: timed out waiting for the condition",
			k.kind)
	}
}

// stale reports whether the object has to be read before the pod is told of it.
func (o *Objects) stale(e *entry, pod types.UID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch o.cfg.Strategy {
	case kubeletconfig.GetChangeDetectionStrategy:
		return true
	case kubeletconfig.TTLCacheChangeDetectionStrategy:
		return e.known && !e.told[pod]
	default:
		return false
	}
}

// await returns when the entry is known, or will not be soon.
func (o *Objects) await(ctx context.Context, e *entry) {
	patient := time.After(patience)
	for {
		select {
		case <-e.settled:
			return
		case <-ctx.Done():
			return
		case <-patient:
			if o.failed(e) {
				return
			}
			patient = time.After(patience)
		}
	}
}

func (o *Objects) failed(e *entry) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return e.err != nil
}

// use follows the object for the pod.
func (o *Objects) use(pod types.UID, k key) (*entry, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, known := o.entries[k]
	if o.uses[pod][k] {
		return e, nil
	}
	if len(o.uses[pod]) >= maxPerPod {
		return nil, fmt.Errorf("%s %q: the pod uses more than %d config maps and secrets; put "+
			"their data together", k.kind, k.name, maxPerPod)
	}
	if !known {
		e = newEntry(k)
		o.entries[k] = e
		o.followLocked(e)
	}
	if o.uses[pod] == nil {
		o.uses[pod] = map[key]bool{}
	}
	o.uses[pod][k] = true
	e.told[pod] = false
	return e, nil
}
