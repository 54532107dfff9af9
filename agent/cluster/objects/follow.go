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

	"github.com/numalet/numalet/agent/cluster/kubeapi"
	"github.com/numalet/numalet/internal/await"
)

const (
	// minWatch is the least time that the API server lets a watch last.
	minWatch = 30 * time.Minute
	// firstRetry and lastRetry bound the pauses after failed reads.
	firstRetry, lastRetry = time.Second, 30 * time.Second
)

// follow follows the object until ctx ends.
func (f *follower) follow(ctx context.Context, e *entry) {
	if f.cfg.Strategy == kubeletconfig.WatchChangeDetectionStrategy {
		f.watch(ctx, e)
	} else {
		f.poll(ctx, e)
	}
}

// watch follows the object by a watch of its name, and records why that fails.
func (f *follower) watch(ctx context.Context, e *entry) {
	all, only := f.cfg.Client.CoreV1(), fields.OneTermEqualSelector("metadata.name", e.name)
	missed := func(err error) { f.missed(e, err) }
	if e.kind == configMaps {
		f.reflect(ctx, e, &v1.ConfigMap{},
			kubeapi.Selected(f.cfg.Client, all.ConfigMaps(e.namespace), only, missed))
	} else {
		f.reflect(ctx, e, &v1.Secret{},
			kubeapi.Selected(f.cfg.Client, all.Secrets(e.namespace), only, missed))
	}
}

func (f *follower) reflect(ctx context.Context, e *entry, kind object, of cache.ListerWatcher) {
	put := func(found object) error {
		if found.GetName() != e.name || found.GetNamespace() != e.namespace {
			return errors.New("the API server sent another object than was asked for")
		}
		f.set(e, found)
		return nil
	}
	gone := func(object) error {
		f.set(e, nil)
		return nil
	}
	all := func(found []object) error {
		if len(found) == 0 {
			return gone(nil)
		}
		return put(found[0])
	}
	store := kubeapi.Store[object]{Put: put, Drop: gone, All: all}
	cache.NewReflectorWithOptions(of, kind, store, cache.ReflectorOptions{
		Name: string(e.kind) + " " + e.namespace + "/" + e.name, MinWatchTimeout: minWatch,
	}).RunWithContext(ctx)
}

// poll follows the object by reading it periodically.
func (f *follower) poll(ctx context.Context, e *entry) {
	retries := await.Pauses{First: firstRetry, Last: lastRetry}
	for failed := 0; ctx.Err() == nil; {
		next := f.cfg.Period + rand.N(f.cfg.Period/10+1)
		if err := f.read(ctx, e); err != nil && !apierrors.IsNotFound(err) {
			next = retries.After(failed)
			failed++
		} else {
			failed = 0
		}
		await.For(ctx, next)
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
		f.set(e, found)
	case apierrors.IsNotFound(err):
		f.set(e, nil)
	default:
		f.missed(e, err)
	}
	return err
}
