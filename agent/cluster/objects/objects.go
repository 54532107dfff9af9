package objects

import (
	"cmp"
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/lru"

	"github.com/numalet/numalet/cri"
)

// Config configures Objects.
type Config struct {
	Client kubernetes.Interface
	// Strategy is configMapAndSecretChangeDetectionStrategy; empty: Watch.
	Strategy kubeletconfig.ResourceChangeDetectionStrategy
	// Period is the time between two reads of an object that is not watched; 0: a minute.
	Period time.Duration
	// Wait is how long a caller waits at most; 0: 10 s.
	Wait time.Duration
	// Changed is called with each pod that would now get another answer than before. It must not
	// block.
	Changed func(pod types.UID)
	// Arrived is called in the same way for pods that Expected was asked about. Optional.
	Arrived func(pod types.UID)
	// Node returns this node's object; nil: it is not known yet.
	Node func() *v1.Node
	// Tell records an event of a pod's certificate. It must not block.
	Tell func(pod *v1.Pod, eventType, reason, message string)
}

// Objects holds the objects of all pods of the node. Its methods may be called from anywhere, and
// answer once Run works.
type Objects struct {
	cfg      Config
	tokens   tokens
	anchors  *lru.Cache // of bundle by anchorsKey
	classes  *lru.Cache // of class by name
	drivers  *lru.Cache // of csiDriver by name
	services *services
	follower *follower // of config maps and secrets
	expected *Expected
	// certificates holds what signers issued for pods.
	certificates podCertificates
}

// New returns Objects that Run follows.
func New(cfg Config) *Objects {
	cfg.Strategy = cmp.Or(cfg.Strategy, kubeletconfig.WatchChangeDetectionStrategy)
	cfg.Period = cmp.Or(cfg.Period, defaultPeriod)
	cfg.Wait = cmp.Or(cfg.Wait, defaultWait)
	if cfg.Arrived == nil {
		cfg.Arrived = func(types.UID) {}
	}
	f := newFollower(cfg)
	return &Objects{
		cfg: cfg, services: newServices(cfg.Client), follower: f,
		expected: &Expected{follower: f, looked: sets.New[types.UID]()},
		anchors:  lru.New(maxAnchors), classes: lru.New(maxClasses),
		drivers:      lru.New(maxDrivers),
		certificates: podCertificates{cfg: cfg}, tokens: tokens{cfg: cfg},
	}
}

// Run follows objects until ctx ends.
func (o *Objects) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { o.services.run(ctx) })
	o.follower.tasks.Run(ctx)
	parts.Wait()
	return nil
}

// Begin follows what the pod's volumes and containers name, before the pod is made, so that it is
// known sooner.
func (o *Objects) Begin(pod *v1.Pod) error {
	for _, r := range references(pod) {
		if _, err := o.follower.use(user{pod: pod.UID}, r.key); err != nil {
			return err
		}
	}
	return nil
}

// Expected follows what pods that wait for admission cannot start without.
func (o *Objects) Expected() *Expected { return o.expected }

// Release ends the following of a pod's objects. Nothing of the pod may be left.
func (o *Objects) Release(pod types.UID) {
	o.tokens.forget(pod)
	o.certificates.forget(pod)
	o.follower.release(user{pod: pod})
}

// ConfigMap returns a config map in the pod's namespace. The error is a *cri.ObjectError.
func (o *Objects) ConfigMap(ctx context.Context, pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	return get[*v1.ConfigMap](ctx, o.follower, pod, key{configMaps, pod.Namespace, name})
}

// Secret returns a secret in the pod's namespace. The error is a *cri.ObjectError.
func (o *Objects) Secret(ctx context.Context, pod *v1.Pod, name string) (*v1.Secret, error) {
	return get[*v1.Secret](ctx, o.follower, pod, key{secrets, pod.Namespace, name})
}

func get[T object](ctx context.Context, f *follower, pod *v1.Pod, k key) (out T, err error) {
	found, err := f.get(ctx, user{pod: pod.UID}, k)
	if err != nil {
		return out, &cri.ObjectError{Err: err}
	}
	return found.(T), nil
}
