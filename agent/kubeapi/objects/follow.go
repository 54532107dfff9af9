package objects

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/agent/kubeapi"
)

const (
	// minWatch is how long the API server lets a watch of an object last at least.
	minWatch = 30 * time.Minute
	// firstRetry and lastRetry are the waits after reads that failed.
	firstRetry, lastRetry = time.Second, 30 * time.Second
)

// followLocked begins to follow the object if Run works.
func (f *follower) followLocked(e *entry) {
	if f.ctx == nil || f.ctx.Err() != nil || e.stop != nil {
		return
	}
	var ctx context.Context
	ctx, e.stop = context.WithCancel(f.ctx)
	follow := f.poll
	if f.cfg.Strategy == kubeletconfig.WatchChangeDetectionStrategy {
		follow = f.watch
	}
	f.goroutines.Go(func() { follow(ctx, e) })
}

// watch follows the object by a watch of this one name.
func (f *follower) watch(ctx context.Context, e *entry) {
	source, expected := f.listWatch(e)
	cache.NewReflectorWithOptions(source, expected, sink{f, e}, cache.ReflectorOptions{
		Name: string(e.kind) + " " + e.namespace + "/" + e.name, MinWatchTimeout: minWatch,
	}).RunWithContext(ctx)
}

// listWatch lists and watches the one object, and keeps why that does not work.
func (f *follower) listWatch(e *entry) (cache.ListerWatcher, object) {
	all, only := f.cfg.Client.CoreV1(), fields.OneTermEqualSelector("metadata.name", e.name)
	missed := func(err error) { f.missed(e, err) }
	if e.kind == configMaps {
		return kubeapi.Selected(f.cfg.Client, all.ConfigMaps(e.namespace), only, missed),
			&v1.ConfigMap{}
	}
	return kubeapi.Selected(f.cfg.Client, all.Secrets(e.namespace), only, missed), &v1.Secret{}
}

// sink takes what a reflector sees of one object.
type sink struct {
	follower *follower
	entry    *entry
}

// Add implements cache.ReflectorStore.
func (s sink) Add(found any) error {
	o, ok := found.(object)
	if !ok || o.GetName() != s.entry.name || o.GetNamespace() != s.entry.namespace {
		return errors.New("the API server sent another object than was asked for")
	}
	s.follower.settle(s.entry, o)
	return nil
}

// Update implements cache.ReflectorStore.
func (s sink) Update(found any) error { return s.Add(found) }

// Delete implements cache.ReflectorStore.
func (s sink) Delete(any) error {
	s.follower.settle(s.entry, nil)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s sink) Replace(all []any, _ string) error {
	if len(all) == 0 {
		return s.Delete(nil)
	}
	return s.Add(all[0])
}

// Resync implements cache.ReflectorStore.
func (s sink) Resync() error { return nil }

// poll follows the object by reading it again and again.
func (f *follower) poll(ctx context.Context, e *entry) {
	retry := firstRetry
	for ctx.Err() == nil {
		next := f.cfg.Period + rand.N(f.cfg.Period/10+1)
		if err := f.read(ctx, e); err != nil && !apierrors.IsNotFound(err) {
			next, retry = retry, min(2*retry, lastRetry)
		} else {
			retry = firstRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		}
	}
}

// read reads the object once.
func (f *follower) read(ctx context.Context, e *entry) (err error) {
	var found object
	if e.kind == configMaps {
		found, err = f.cfg.Client.CoreV1().ConfigMaps(e.namespace).
			Get(ctx, e.name, metav1.GetOptions{})
	} else {
		found, err = f.cfg.Client.CoreV1().Secrets(e.namespace).
			Get(ctx, e.name, metav1.GetOptions{})
	}
	switch {
	case err == nil:
		f.settle(e, found)
	case apierrors.IsNotFound(err):
		f.settle(e, nil)
	default:
		f.missed(e, err)
	}
	return err
}
