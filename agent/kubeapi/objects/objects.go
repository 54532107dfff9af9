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
	// Arrived is told the same of pods that Expected was asked about; nil: nobody is.
	Arrived func(pod types.UID)
	// Node is this node's object, nil as long as it is not known.
	Node func() *v1.Node
	// Tell is told what happens to a pod's certificates. It must not block.
	Tell func(pod *v1.Pod, eventType, reason, message string)
}

// Objects has the objects of all pods of the node. Its methods may be called from anywhere, and
// answer once Run works.
type Objects struct {
	cfg      Config
	tokens   perPod[tokenKey, token]
	anchors  *lru.Cache // of bundle by anchorsKey
	classes  *lru.Cache // of class by name
	services *services
	follower *follower // of config maps and secrets
	expected *Expected
	// certificates are those that signers issued for pods.
	certificates podCertificates
}

// New returns objects that are followed by Run.
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
		certificates: podCertificates{cfg: cfg},
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

// Begin says that the pod is about to be made: what its volumes and containers name is followed
// from now on, so that it is known sooner.
func (o *Objects) Begin(pod *v1.Pod) error {
	for k := range references(pod) {
		if _, err := o.follower.use(user{pod: pod.UID}, k); err != nil {
			return err
		}
	}
	return nil
}

// Expected are those that pods that wait for admission cannot start without.
func (o *Objects) Expected() *Expected { return o.expected }

// Release says that nothing of the pod is left that uses objects.
func (o *Objects) Release(pod types.UID) {
	o.tokens.forget(pod)
	o.certificates.forget(pod)
	o.follower.release(user{pod: pod})
}

// ConfigMap is the one of that name in the pod's namespace. The error is a *cri.ObjectError.
func (o *Objects) ConfigMap(ctx context.Context, pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	found, err := o.follower.get(ctx, user{pod: pod.UID}, key{configMaps, pod.Namespace, name})
	if err != nil {
		return nil, &cri.ObjectError{Err: err}
	}
	return found.(*v1.ConfigMap), nil
}

// Secret is the one of that name in the pod's namespace. The error is a *cri.ObjectError.
func (o *Objects) Secret(ctx context.Context, pod *v1.Pod, name string) (*v1.Secret, error) {
	found, err := o.follower.get(ctx, user{pod: pod.UID}, key{secrets, pod.Namespace, name})
	if err != nil {
		return nil, &cri.ObjectError{Err: err}
	}
	return found.(*v1.Secret), nil
}
